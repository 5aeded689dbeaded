"""Bootstrap confidence intervals: how much a statistic would vary with other problems of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

DRAWS = 2000
CONFIDENCE = 0.95

Statistic = Callable[[Array], Array]
"""A statistic over the last axis, of one draw (problems,) or several (draws, problems)."""


@dataclass(frozen=True)
class Interval:
    """A statistic with its 95 % percentile bootstrap interval over the problems."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def mean(values: Array) -> Array:
    """Returns the mean over the last axis."""
    return np.asarray(values.mean(axis=-1))


def median(values: Array) -> Array:
    """Median over the last axis."""
    return np.asarray(np.median(values, axis=-1))


def p10(values: Array) -> Array:
    """10th percentile over the last axis, with linear interpolation."""
    return np.asarray(np.percentile(values, 10, axis=-1))


def interval(values: Array, statistic: Statistic, seed: int = 0, draws: int = DRAWS) -> Interval:
    """Returns the statistic of the values, (problems,), with its percentile bootstrap interval."""
    values = np.asarray(values, dtype=np.float64)
    index = np.random.default_rng(seed).integers(0, len(values), (draws, len(values)))
    found = statistic(values[index])
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(statistic(values[None, :])[0]), float(low), float(high))


def paired_interval(
    old: Array, new: Array, statistic: Statistic, seed: int = 0, draws: int = DRAWS
) -> Interval:
    """Returns the statistic of `new` less that of `old`, resampling problems with both their values."""
    old, new = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    index = np.random.default_rng(seed).integers(0, len(old), (draws, len(old)))
    found = statistic(new[index]) - statistic(old[index])
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    value = float(statistic(new[None, :])[0] - statistic(old[None, :])[0])
    return Interval(value, float(low), float(high))
