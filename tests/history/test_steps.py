"""Steps are told from noise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.history.made_runs import noisy_means
from tile_oracle.history.steps import find_steps


@pytest.mark.parametrize("count", [20, 100])
def test_noise_alone_rarely_has_a_settled_step(count: int) -> None:
    found = [any(step.settled for step in find_steps(noisy_means(count, seed))) for seed in range(60)]
    assert sum(found) <= 3


def test_a_step_of_three_sigma_is_found_with_its_place_and_size() -> None:
    covered = false_alarms = 0
    for seed in range(40):
        values = noisy_means(60, seed, noise=0.3)
        values[40:] -= 0.9
        (step, *others) = sorted(find_steps(values), key=lambda one: abs(one.at - 40))
        false_alarms += sum(one.settled for one in others)
        assert step.settled
        covered += step.first <= 40 <= step.last
        assert abs(step.at - 40) <= 3
        assert step.last - step.first < 8
        assert step.change == pytest.approx(-0.9, abs=0.45)
        assert step.low < step.change < step.high < 0
    assert false_alarms <= 3
    assert covered >= 34  # of 40 at 95 %: 33 or fewer has a probability below 0.01


def test_the_interval_of_the_size_covers_the_truth() -> None:
    covered = 0
    for seed in range(100):
        values = noisy_means(40, seed, noise=0.3)
        values[20:] += 1.5
        (step, *_) = sorted(find_steps(values), key=lambda one: abs(one.at - 20))
        covered += step.low <= 1.5 <= step.high
    assert covered >= 89  # of 100 at 95 %: 88 or fewer has a probability below 0.005


def test_two_steps_are_two() -> None:
    values = noisy_means(90, 5, noise=0.2)
    values[30:] -= 1
    values[60:] += 2
    assert [round(step.change) for step in find_steps(values) if step.settled] == [-1, 2]


def test_exact_series_have_steps_without_noise() -> None:
    (step,) = find_steps(np.array([98.8] * 12 + [98.2] * 12))
    assert (step.at, step.first, step.last, step.settled) == (12, 12, 12, True)
    assert (step.low, step.high) == pytest.approx((-0.6, -0.6))
    assert find_steps(np.full(30, 97.5)) == []


def test_few_nights_settle_nothing() -> None:
    assert find_steps(np.array([95.0, 90.0])) == []
    assert not any(step.settled for step in find_steps(np.array([95.0, 95.1, 94.9, 90.0, 90.1, 89.9])))


def test_one_odd_night_is_no_level() -> None:
    values = noisy_means(30, 3, noise=0.1)
    values[12] -= 3
    assert not any(step.settled for step in find_steps(values))
