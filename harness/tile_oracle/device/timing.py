"""The timing policy: warm up until times are steady, then sample until the median is precise enough.

With sequential sampling, each kernel first gets a quick look of a few samples, and only those that may be
among the fastest of their problem get the rest.

The policy is independent of devices. It gets functions that run the kernel a number of times and return the
nanoseconds of each run by the device's clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tile_oracle.measure.timing_plan import TimingPlan

Sampler = Callable[[int], npt.NDArray[np.float64]]

FULL, COARSE, EXACT, CENSORED = "full", "coarse", "exact", "censored"
"""How samples were allotted, the values of the column `sampling`: until the plan's precision is reached; a
few, because the kernel cannot lead; a given number; none but the first checked run, by which the kernel had
lost."""

_FIRST_RUN_ADDS_MS, _FIRST_RUN_TAKES = 0.05, 1.25
"""How much longer a kernel's first run on a problem may take than the others: milliseconds for caches that
are cold, and a factor."""

UNDECIDED = ""


@dataclass(frozen=True)
class Timing:
    """Samples in milliseconds and their statistics."""

    sample_ms: tuple[float, ...]
    median_ms: float
    min_ms: float
    spread: float
    precision: float
    """Half-width of the median's confidence interval, divided by the median; NaN below six samples."""
    sampling: str = FULL

    @property
    def half_width(self) -> float:
        """`precision`; for two to five samples half their range, divided by the median; NaN for one."""
        if not math.isnan(self.precision) or len(self.sample_ms) < 2:
            return self.precision
        return (max(self.sample_ms) - self.min_ms) / 2 / self.median_ms


def summarise(sample_ms: npt.NDArray[np.float64]) -> Timing:
    """Median, minimum, relative interquartile range, relative confidence half-width of the median."""
    ordered = np.sort(sample_ms)
    low, median, high = (_quantile(ordered, fraction) for fraction in (0.25, 0.5, 0.75))
    return Timing(
        tuple(sample_ms.tolist()),
        median,
        float(ordered[0]),
        (high - low) / median if median > 0 else 0.0,
        _median_precision(ordered, median),
    )


def _quantile(ordered: npt.NDArray[np.float64], fraction: float) -> float:
    """np.quantile with linear interpolation, without its overhead, which exceeds the time of many kernels."""
    whole, part = divmod(fraction * (len(ordered) - 1), 1)
    low, high = float(ordered[int(whole)]), float(ordered[math.ceil(whole + part)])
    return low + (high - low) * part


def _median_precision(ordered: npt.NDArray[np.float64], median: float) -> float:
    """Distribution-free: the order statistics n/2 -+ 0.98 sqrt(n) bracket the median with 95 % confidence."""
    n = len(ordered)
    if n < 6 or median <= 0:
        return math.nan
    reach = 0.98 * math.sqrt(n)
    low = ordered[max(0, math.floor(n / 2 - reach))]
    high = ordered[min(n - 1, math.ceil(n / 2 + reach))]
    return float(high - low) / 2 / median


def at_least_ms(first_ms: float, started_in_ms: float = 0.0) -> float:
    """Returns the least time that a kernel takes whose first run on a problem took `first_ms`.

    started_in_ms: how long the host took to start it, while the device may have had nothing to do. A call of
    cuBLASLt takes 0.06 to 0.11 ms."""
    return (first_ms - started_in_ms - _FIRST_RUN_ADDS_MS) / _FIRST_RUN_TAKES


def time_kernel(
    sample: Sampler, plan: TimingPlan, look: Sampler | None = None, best_ms: float | None = None
) -> tuple[Timing, bool]:
    """Warms up, samples and summarises. The second value says whether the median is too noisy to trust.

    look: takes samples quickly, for sequential sampling. best_ms: the fastest median of the problem so far.
    """
    seen_ms = 0.0
    if plan.sequential and plan.exact_samples is None and look is not None and best_ms is not None:
        seen = _look(look, plan, best_ms)
        if seen.sampling != UNDECIDED:
            return seen, False
        seen_ms = seen.median_ms
    first = float(sample(1)[0]) / 1e6
    if plan.exact_samples is not None:
        return _exactly(sample, plan.exact_samples, first, plan)
    if first >= plan.budget_ms:
        return summarise(np.array([float(sample(1)[0]) / 1e6])), False
    is_warm = abs(first - seen_ms) <= 2 * plan.precision * seen_ms
    last = first if is_warm else _warm_up(sample, first, plan)
    taken: list[npt.NDArray[np.float64]] = []
    spent_ms, count = 0.0, 0
    while True:
        batch = max(1, min(_batch_size(last, plan), plan.max_batch, plan.max_samples - count))
        values = sample(batch) / 1e6
        taken.append(values)
        spent_ms += float(values.sum())
        count += batch
        ordered = np.sort(np.concatenate(taken))
        last = _quantile(ordered, 0.5)
        precision = _median_precision(ordered, last)
        known = precision <= plan.precision and count >= plan.min_samples
        if known or count >= plan.max_samples:
            break
        if spent_ms >= plan.budget_ms and not precision > plan.noisy_above:
            break
        # With few samples, one disturbed sample widens the interval to the full range: take more.
        enough = 3 if count >= plan.samples_to_judge else 10
        if spent_ms >= enough * plan.budget_ms:
            break
    return summarise(np.concatenate(taken)), precision > plan.noisy_above


def _look(look: Sampler, plan: TimingPlan, best_ms: float) -> Timing:
    """Returns the coarse timing of a kernel that cannot lead; UNDECIDED for one that may and needs the full
    plan.

    A kernel that may lead and is longer than the budget gets what the full plan would give: one sample after
    one run.
    """
    taken = look(1) / 1e6
    while True:
        timing = replace(summarise(taken), sampling=COARSE)
        if timing.min_ms > plan.far_behind * best_ms:
            return timing
        if timing.min_ms * (1 - plan.coarse_precision) <= best_ms * (1 + plan.leaders_within):
            if timing.min_ms >= plan.budget_ms:
                return summarise(look(1)[-1:] / 1e6)
            return replace(timing, sampling=UNDECIDED)
        if timing.half_width <= plan.coarse_precision:
            return timing
        if len(taken) >= plan.coarse_samples:
            return replace(timing, sampling=UNDECIDED)  # too noisy to tell from a few samples
        taken = np.concatenate([taken, look(1) / 1e6])


def _exactly(sample: Sampler, count: int, first_ms: float, plan: TimingPlan) -> tuple[Timing, bool]:
    """Takes exactly `count` samples. For short runs the device returns fewer values at a time, each a
    mean."""
    if first_ms < plan.budget_ms:
        _warm_up(sample, first_ms, plan)
    taken = np.empty(0)
    while len(taken) < count:
        taken = np.concatenate([taken, sample(count - len(taken)) / 1e6])
    timing = replace(summarise(taken[:count]), sampling=EXACT)
    return timing, timing.precision > plan.noisy_above


def _batch_size(expected_ms: float, plan: TimingPlan) -> int:
    """About a fifth of the budget at a time."""
    return max(1, int(plan.budget_ms / 5 / max(expected_ms, 1e-4)))


def _warm_up(sample: Sampler, first_ms: float, plan: TimingPlan) -> float:
    """Runs until two successive batches agree within twice the wanted precision, or its budget is spent."""
    budget = plan.budget_ms * plan.warm_up_fraction
    spent, last = first_ms, first_ms
    batch = max(1, min(50, plan.max_batch, int(budget / 4 / max(first_ms, 1e-4))))
    while spent < budget:
        values = sample(batch) / 1e6
        spent += float(values.sum())
        median = _quantile(np.sort(values), 0.5)
        if abs(median - last) <= 2 * plan.precision * last:
            return median
        last = median
        # Evaluating a batch takes longer than a batch of tiny kernels.
        batch = min(2 * batch, plan.max_batch, max(1, int((budget - spent) / max(last, 1e-4))))
    return last
