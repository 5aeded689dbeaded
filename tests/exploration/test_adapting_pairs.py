"""Which problems to measure for an adapted model."""

from __future__ import annotations

from tile_oracle.exploration.suggest import covering_problems


def test_problems_of_kernels_that_many_problems_pick_come_first() -> None:
    picks = [["rare", "odd"], ["often", "usual"], ["often", "usual"], ["often", "seldom"]]
    assert covering_problems(picks, 2) == [1]
    # often: 3 / 6, usual: 2 / 6 against seldom: 1 / 2, and rare and odd: 1 / 2 each.
    assert covering_problems(picks, 5) == [1, 0, 3]


def test_each_problem_is_chosen_once() -> None:
    assert covering_problems([["a"], ["a"], ["b"]], 9) == [0, 2, 1]
    assert covering_problems([], 3) == []
