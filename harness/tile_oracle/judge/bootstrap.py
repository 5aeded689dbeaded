"""Bootstrap confidence intervals: how much a statistic would vary with other problems of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

DRAWS = 2000
CONFIDENCE = 0.95

Statistic = Callable[[npt.NDArray[Any]], Array]
"""A statistic over the last axis, of one draw (problems,) or several (draws, problems)."""


@dataclass(frozen=True)
class Interval:
    """A statistic with its 95 % percentile bootstrap interval over the problems."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def points(self, digits: int) -> str:
        """Returns a change, with signs."""
        return f"{self.value:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"


def mean(values: Array) -> Array:
    """Returns the mean over the last axis."""
    return np.asarray(values.mean(axis=-1))


def median(values: Array) -> Array:
    """Median over the last axis."""
    return np.asarray(np.median(values, axis=-1))


def p10(values: Array) -> Array:
    """10th percentile over the last axis, with linear interpolation."""
    return np.asarray(np.percentile(values, 10, axis=-1))


def interval(values: Array, statistic: Statistic) -> Interval:
    """Returns the statistic of the values, (problems,), with its percentile bootstrap interval."""
    return _resampled(len(values), lambda problems: statistic(np.asarray(values)[problems]))


def paired_interval(old: Array, new: Array, statistic: Statistic) -> Interval:
    """Returns the statistic of `new` less that of `old`, resampling problems with both their values."""
    old, new = np.asarray(old), np.asarray(new)
    return _resampled(len(old), lambda problems: statistic(new[problems]) - statistic(old[problems]))


def _resampled(count: int, statistic: Statistic) -> Interval:
    """statistic: of places of problems."""
    places = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    low, high = np.quantile(statistic(places), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(statistic(np.arange(count)[None, :])[0]), float(low), float(high))
