"""How long a sweep still takes, estimated from the problems that were measured.

A pair takes a time that is equal for all problems (loading, samples, records) and one that grows with the
problem's operations (data, check, long runs). Which of them counts depends on the device, the budget of a
kernel and the problems, so both are fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

RUNS_OF_LONG = 5.0
"""Runs of a kernel that takes longer than its budget of samples: checks, and two timed ones."""
_TYPICAL = 0.5
"""Of the best kernel's rate, that of the others of its pool in the mean."""
_REWEIGHTINGS = 8
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
    weights = [float(one.pairs) for one in measured]
    least = _EXACT * median(one.seconds / one.pairs for one in measured)
    for _ in range(_REWEIGHTINGS):
        constant, per_flop = _least_squares(measured, weights)
        residuals = [abs(one.seconds / one.pairs - constant - per_flop * one.flops) for one in measured]
        usual = max(median(residuals), least)
        weights = [
            one.pairs * (usual / residual if residual > usual else 1.0)
            for one, residual in zip(measured, residuals, strict=True)
        ]
    return PairTime(constant, per_flop, max(one.flops for one in measured))


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


def _least_squares(measured: Sequence[Measured], weights: Sequence[float]) -> tuple[float, float]:
    """Constant and slope, not negative, of a pair's mean time over the operations."""
    weight = sum(weights)
    flops = sum(w * one.flops for w, one in zip(weights, measured, strict=True)) / weight
    time = sum(w * one.seconds / one.pairs for w, one in zip(weights, measured, strict=True)) / weight
    spread = slope = through_zero = squares = 0.0
    for w, one in zip(weights, measured, strict=True):
        pair_s = one.seconds / one.pairs
        spread += w * (one.flops - flops) ** 2
        slope += w * (one.flops - flops) * (pair_s - time)
        squares += w * one.flops**2
        through_zero += w * one.flops * pair_s
    if spread <= 0 or slope <= 0:
        return time, 0.0
    constant = time - slope / spread * flops
    return (constant, slope / spread) if constant >= 0 else (0.0, through_zero / squares)
