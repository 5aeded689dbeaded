"""Steps in a series of nightly values: where the level changed, by how much, and whether noise explains it.

0. Single odd nights are set to the median of five nights around them (Hampel's filter, Journal of the
   American Statistical Association 69, 1974, at 4 sigma): they are neither levels nor noise.
1. Candidates are the change points of the least-squares fit of a piecewise constant level with a penalty for
   each of them, found exactly by optimal partitioning (Jackson et al., IEEE Signal Processing Letters 12,
   2005). The penalty is 3 sigma^2 ln n (the modified BIC of Zhang and Siegmund, Biometrics 63, 2007). sigma
   is robust: the median absolute difference of neighbours, so that steps and outliers hardly raise it.
2. A candidate is a step if a permutation test rejects that its two levels are one: the largest standardized
   CUSUM over all splits of the two segments, against that of random orders (Antoch and Huskova, Statistics
   and Probability Letters 53, 2001). The others are reported as not settled.
3. The interval of a step's size is Welch's (Biometrika 34, 1947). The interval of its place is a bootstrap of
   the residuals of both segments (Antoch, Huskova and Veraverbeke, Journal of Nonparametric Statistics 5,
   1995).

Nights count as independent. A level has at least LEAST values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LEAST = 3
"""The fewest values of a level."""
SIGNIFICANCE = 0.01
"""The largest p-value of a step."""
CONFIDENCE = 0.95

_PERMUTATIONS = 999
_MOST_TESTED = 150
_DRAWS = 400
_SEED = 20260
_MAD = 1.4826
_ODD_SIGMAS = 4.0
_AROUND = 2


@dataclass(frozen=True)
class Step:
    """A change of level. at: index of the first value of the new level; first, last: the interval of that
    index. before, after: the levels. low, high: the interval of after - before. settled: the permutation test
    rejects noise."""

    at: int
    first: int
    last: int
    before: float
    after: float
    low: float
    high: float
    p_value: float

    @property
    def change(self) -> float:
        """The new level less the old one."""
        return self.after - self.before

    @property
    def settled(self) -> bool:
        """Whether noise does not explain the step."""
        return self.p_value <= SIGNIFICANCE


def find_steps(values: Array) -> list[Step]:
    """Returns the steps of a series, oldest first. values: finite, in the order of time."""
    values = _without_odd(np.asarray(values, dtype=np.float64))
    ends = [0, *_change_points(values), len(values)]
    rng = np.random.default_rng(_SEED)
    return [
        _step(values, start, at, end, rng) for start, at, end in zip(ends, ends[1:], ends[2:], strict=False)
    ]


def noise_of(values: Array) -> float:
    """Robust standard deviation of the values around their level; that of the differences if more than half
    of them are 0."""
    difference = np.diff(values)
    if not len(difference):
        return 0.0
    robust = _MAD * float(np.median(np.abs(difference)))
    return (robust or float(np.sqrt(np.mean(difference**2)))) / math.sqrt(2)


def _without_odd(values: Array) -> Array:
    """Returns the values, with single odd ones replaced by the median of those around them. Two nights at an
    end are compared with the five at that end."""
    window = 2 * _AROUND + 1
    if len(values) < window:
        return values
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, window), axis=1)
    medians = np.pad(medians, _AROUND, mode="edge")
    return np.asarray(np.where(np.abs(values - medians) > _ODD_SIGMAS * noise_of(values), medians, values))


def _change_points(values: Array) -> list[int]:
    """Returns the indices where a new level begins."""
    count = len(values)
    sigma = noise_of(values)
    if count < 2 * LEAST or sigma <= 1e-12 * float(np.abs(values).max()):
        return []
    shifted = values - values.mean()
    sums = np.concatenate([[0.0], np.cumsum(shifted)])
    squares = np.concatenate([[0.0], np.cumsum(shifted**2)])
    penalty = 3.0 * sigma**2 * math.log(count)
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    previous = np.zeros(count + 1, dtype=np.int64)
    for end in range(LEAST, count + 1):
        starts = np.arange(0, end - LEAST + 1)
        rest = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        cost = best[starts] + rest + penalty
        chosen = int(cost.argmin())
        best[end], previous[end] = cost[chosen], chosen
    found: list[int] = []
    end = count
    while end > 0:
        end = int(previous[end])
        found.append(end)
    return sorted(one for one in found if one)


def _step(values: Array, start: int, at: int, end: int, rng: np.random.Generator) -> Step:
    before, after = values[start:at], values[at:end]
    low, high = _welch(before, after)
    # More values than these settle nothing further, and would only take time.
    near, next_ = before[-_MOST_TESTED:], after[:_MOST_TESTED]
    first, last = _place_interval(near, next_, rng)
    moved = at - len(near)
    return Step(
        at,
        min(moved + first, at),
        max(moved + last, at),
        float(before.mean()),
        float(after.mean()),
        low,
        high,
        _permutation_p(np.concatenate([near, next_]), rng),
    )


def _splits(rows: Array) -> Array:
    """Returns the standardized CUSUM of every split of each row that leaves LEAST values on both sides."""
    count = rows.shape[1]
    left = np.arange(LEAST, count - LEAST + 1)
    sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, left - 1]
    return np.asarray(np.abs(sums) / np.sqrt(left * (count - left) / count))


def _permutation_p(both: Array, rng: np.random.Generator) -> float:
    seen = float(_splits(both[None, :]).max())
    random = rng.permuted(np.broadcast_to(both, (_PERMUTATIONS, len(both))), axis=1)
    as_large = int((_splits(random).max(axis=1) >= seen * (1 - 1e-12)).sum())
    return (1 + as_large) / (1 + _PERMUTATIONS)


def _place_interval(before: Array, after: Array, rng: np.random.Generator) -> tuple[int, int]:
    """Returns the interval of the index, within both segments, at which the second one begins."""
    parts = [side.mean() + rng.choice(side - side.mean(), (_DRAWS, len(side))) for side in (before, after)]
    found = LEAST + _splits(np.hstack(parts)).argmax(axis=1)
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    return int(low), int(high)


def _welch(before: Array, after: Array) -> tuple[float, float]:
    """Returns the interval of the difference of two means, by Welch's t-test."""
    import scipy.special  # not at the top: it is slow to import

    change = float(after.mean() - before.mean())
    squares = np.array([side.var(ddof=1) / len(side) for side in (before, after)])
    if not squares.sum() > 0:
        return change, change
    dof = squares.sum() ** 2 / (squares**2 / [len(before) - 1, len(after) - 1]).sum()
    reach = float(scipy.special.stdtrit(dof, (1 + CONFIDENCE) / 2) * math.sqrt(squares.sum()))
    return change - reach, change + reach
