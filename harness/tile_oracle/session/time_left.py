"""How long a sweep still takes, estimated from the problems that were measured, and where the time went.

A pair takes a time that is equal for all problems (loading, samples, records) and one that grows with the
problem's operations (data, check, long runs). Which of them counts depends on the device, the budget of a
kernel and the problems, so both are fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tile_oracle.problem import problem_from_id

if TYPE_CHECKING:
    import pandas as pd


Numbers = npt.NDArray[np.float64]
RUNS_OF_LONG = 5.0
"""Runs of a kernel that takes longer than its budget of samples: checks, and two timed ones."""
_TYPICAL = 0.5
"""Of the best kernel's rate, that of the others of its pool in the mean."""
_REWEIGHTINGS = 8
_FLOPS_OF_OVERHEAD = 1e9
"""The overhead of a pair (build, check, sampling), expressed as FLOPs."""
_EXACT = 1e-6
"""A residual, relative to the median time of a pair, that counts as none."""


@dataclass(frozen=True)
class Work:
    """A problem: number of pairs and floating-point operations of one."""

    pairs: int
    flops: float


@dataclass(frozen=True)
class Measured(Work):
    """A measured problem: the time of all its pairs, in seconds."""

    seconds: float


@dataclass(frozen=True)
class PairTime:
    """The expected time of a pair, in seconds: constant + flops * per_flop. Problems larger than `most_flops`
    are expected to take no longer: so far outside of what was measured, a slope says nothing."""

    constant: float
    per_flop: float
    most_flops: float

    def of_all(self, work: Iterable[Work]) -> float:
        """Returns the time of several problems."""
        return sum(
            one.pairs * (self.constant + self.per_flop * min(one.flops, self.most_flops)) for one in work
        )


def fit_pair_time(measured: Sequence[Measured]) -> PairTime:
    """Least squares, both parts not negative. A problem that took unusually long, such as one that waited for
    a compiler, is weighted down (Huber: by the ratio of the median residual to its own)."""
    if not measured:
        return PairTime(0.0, 0.0, 0.0)
    pairs, flops, seconds = np.array([(one.pairs, one.flops, one.seconds) for one in measured]).T
    pair_s, weights = seconds / pairs, pairs
    least = max(_EXACT * float(np.median(pair_s)), sys.float_info.min)
    for _ in range(_REWEIGHTINGS):
        constant, per_flop = _least_squares(flops, pair_s, weights)
        residuals = np.abs(pair_s - constant - per_flop * flops)
        usual = max(float(np.median(residuals)), least)
        weights = pairs * usual / np.maximum(residuals, usual)
    return PairTime(constant, per_flop, float(flops.max()))


def time_left_s(expected: PairTime, done: Iterable[Work], left: Iterable[Work], elapsed_s: float) -> float:
    """Returns the time of the work that is left, if the work that is done took `elapsed_s`.

    expected: says which work takes longer than other; its times are those of a worker, and several workers
    share the elapsed time.
    """
    done, left = tuple(done), tuple(left)
    of_done = expected.of_all(done)
    if of_done > 0:
        return elapsed_s * expected.of_all(left) / of_done
    return elapsed_s * sum(one.pairs for one in left) / max(1, sum(one.pairs for one in done))


def beyond_s(left: Iterable[Work], most_flops: float, best_tflops: float) -> float:
    """Returns what work may take that is larger than all that was measured, more than the largest measured
    one: at the rate of that one's kernels, which larger problems usually exceed. best_tflops: of its
    fastest."""
    if not best_tflops > 0:
        return 0.0
    flops = sum(one.pairs * max(0.0, one.flops - most_flops) for one in left)
    return RUNS_OF_LONG * flops / (_TYPICAL * best_tflops * 1e12)


def _least_squares(flops: Numbers, pair_s: Numbers, weights: Numbers) -> tuple[float, float]:
    """Constant and slope, not negative, of a pair's mean time over the operations."""
    mean_flops, mean_s = (float(np.average(one, weights=weights)) for one in (flops, pair_s))
    spread = float(weights @ (flops - mean_flops) ** 2)
    slope = float(weights @ ((flops - mean_flops) * (pair_s - mean_s)))
    if spread <= 0 or slope <= 0:
        return mean_s, 0.0
    constant = mean_s - slope / spread * mean_flops
    if constant >= 0:
        return constant, slope / spread
    return 0.0, float(weights @ (flops * pair_s)) / float(weights @ flops**2)


def expected_times(counts: Mapping[str, int]) -> dict[str, float]:
    """Problem id -> expected time of all its tests, in a relative unit. counts: problem id -> number of its
    tests."""
    return {
        name: count * (_FLOPS_OF_OVERHEAD + problem_from_id(name).flops) for name, count in counts.items()
    }


_PARTS = {"busy_ms": "timed runs", "check_ms": "checks", "build_wait_ms": "waiting for compilers"}
"""Column of the records -> what it is the time of."""


def where_time_went(
    records: pd.DataFrame, since: datetime, wall_s: float, workers: int, pytest_s: float
) -> str:
    """Returns the shares of a session's time in words, "" where nothing was measured since it began.

    records: of the run. wall_s: since the session began. workers: processes or devices that measured at once.
    pytest_s: what pytest itself took, summed over them. The host's share is loading, launching, recording,
    judging; and waiting, where workers ran out of problems.
    """
    own = records[records["time"] >= since] if len(records) else records
    if own.empty or wall_s <= 0:
        return ""
    seconds = {name: float(own[column].sum()) / 1e3 for column, name in _PARTS.items()}
    seconds["pytest"] = pytest_s
    seconds["host"] = max(0.0, wall_s * workers - sum(seconds.values()))
    shares = ", ".join(f"{name} {100 * taken / (wall_s * workers):.0f} %" for name, taken in seconds.items())
    return f"{shares} of {wall_s:,.0f} s" + (f" on {workers} workers" if workers > 1 else "")
