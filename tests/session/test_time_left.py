"""The time left of a sweep as a function of what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.session.time_left import Measured, Work, beyond_s, expected_times, fit_pair_time, time_left_s

PAIRS = st.integers(1, 5_000)
FLOPS = st.floats(1.0, 1e13)
SECONDS = st.floats(1e-3, 1e4)
WORK = st.builds(Work, PAIRS, FLOPS)
MEASURED = st.builds(Measured, PAIRS, FLOPS, SECONDS)


@given(
    st.lists(WORK, min_size=2, max_size=20),
    st.floats(1e-4, 10.0),
    st.floats(0.0, 1e-9),
    st.lists(PAIRS, min_size=1, max_size=5),
)
def test_times_that_grow_with_the_operations_are_found(
    works: list[Work], constant: float, per_flop: float, left: list[int]
) -> None:
    measured = [Measured(w.pairs, w.flops, w.pairs * (constant + per_flop * w.flops)) for w in works]
    rest = [replace(works[number % len(works)], pairs=pairs) for number, pairs in enumerate(left)]
    expected = sum(one.pairs * (constant + per_flop * one.flops) for one in rest)
    elapsed = sum(one.seconds for one in measured)
    assert time_left_s(fit_pair_time(measured), measured, rest, elapsed) == pytest.approx(expected, rel=1e-3)


@given(st.lists(MEASURED, max_size=20), FLOPS, PAIRS, PAIRS, SECONDS)
def test_equal_problems_take_equally_long(
    measured: list[Measured], flops: float, done: int, left: int, elapsed: float
) -> None:
    """Whatever others took: the rest is proportional to what was done of them."""
    found = time_left_s(fit_pair_time(measured), [Work(done, flops)], [Work(left, flops)], elapsed)
    assert found == pytest.approx(elapsed * left / done)


@given(st.lists(MEASURED, min_size=1, max_size=20), st.lists(WORK, max_size=10), SECONDS)
def test_a_pair_is_not_expected_to_take_longer_than_the_largest_measured_one(
    measured: list[Measured], left: list[Work], elapsed: float
) -> None:
    expected = fit_pair_time(measured)
    assert min(expected.constant, expected.per_flop) >= 0
    largest = max(one.flops for one in measured)
    limited = [replace(one, flops=min(one.flops, largest)) for one in left]
    found = time_left_s(fit_pair_time(measured), measured, left, elapsed)
    assert found == time_left_s(fit_pair_time(measured), measured, limited, elapsed)
    most = expected.of_all([Work(1, largest)])
    assert expected.of_all(left) <= sum(one.pairs for one in left) * most * (1 + 1e-9)


@given(st.lists(MEASURED, min_size=1, max_size=20), st.lists(WORK, max_size=10), WORK, SECONDS)
def test_more_work_takes_no_less_time(
    measured: list[Measured], left: list[Work], more: Work, elapsed: float
) -> None:
    found = time_left_s(fit_pair_time(measured), measured, left, elapsed)
    assert 0 <= found <= time_left_s(fit_pair_time(measured), measured, [*left, more], elapsed)


@given(st.lists(MEASURED, min_size=1, max_size=20), st.lists(WORK, min_size=1, max_size=10), SECONDS)
def test_units_do_not_matter(measured: list[Measured], left: list[Work], elapsed: float) -> None:
    found = time_left_s(fit_pair_time(measured), measured, left, elapsed)
    scaled = [Measured(one.pairs, one.flops / 1024, one.seconds / 64) for one in measured]
    rest = [replace(one, flops=one.flops / 1024) for one in left]
    assert time_left_s(fit_pair_time(scaled), scaled, rest, elapsed) == pytest.approx(found, rel=1e-6)


@given(st.integers(0, 19), st.floats(1.0, 1e4))
def test_one_problem_that_waited_for_a_compiler_does_not_mislead(place: int, waited_s: float) -> None:
    """Of twenty, whose pairs take 10 ms and 1 ms per GFLOP."""
    measured = [Measured(100, 1e9 * n, 100 * (0.01 + 0.001 * n)) for n in range(20)]
    measured[place] = replace(measured[place], seconds=measured[place].seconds + waited_s)
    expected = fit_pair_time(measured)
    assert expected.constant == pytest.approx(0.01, rel=0.25)
    assert expected.per_flop == pytest.approx(1e-12, rel=0.25)


def test_without_times_all_pairs_are_equal() -> None:
    assert time_left_s(fit_pair_time([]), [Work(2, 1e9)], [Work(6, 1e9), Work(4, 1e12)], 3.0) == 15.0
    assert time_left_s(fit_pair_time([]), [], [Work(6, 1e9)], 0.0) == 0.0
    assert time_left_s(fit_pair_time([Measured(4, 1e9, 0.0)]), [Work(4, 1e9)], [Work(8, 1e9)], 0.0) == 0.0


def test_larger_problems_and_more_kernels_are_expected_to_take_longer() -> None:
    large, small = "forward-fp32-n8-c64-k64-i56x56-f3x3-p1", "forward-fp32-n1-c8-k8-i6x6-f3x3"
    times = expected_times({small: 10, large: 10, "forward-fp32-n1-c16-k16-i5x5-f1x1": 15})
    assert sorted(times, key=lambda name: times[name]) == [small, "forward-fp32-n1-c16-k16-i5x5-f1x1", large]


def test_larger_problems_may_take_as_long_as_the_largest_measured_ones_rate_says() -> None:
    assert beyond_s([Work(10, 2e12)], 1e12, 1.0) == pytest.approx(10 * 5 * 1e12 / 0.5e12)
    assert beyond_s([Work(10, 1e12)], 2e12, 1.0) == 0.0
    assert beyond_s([Work(10, 1e12)], 0.0, 0.0) == 0.0, "nothing is known"
