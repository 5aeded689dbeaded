"""The timing policy on simulated kernels: steady, warming up, noisy, bimodal, very slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.device.timing import COARSE, EXACT, FULL, summarise, time_kernel
from tile_oracle.measure.timing_plan import TimingPlan

Nanoseconds = npt.NDArray[np.float64]


class Kernel:
    """Run i takes duration_ms(i); counts its runs and the time spent."""

    def __init__(self, duration_ms: Callable[[int], float]) -> None:
        self.duration_ms = duration_ms
        self.runs = 0
        self.calls = 0
        self.spent_ms = 0.0

    def __call__(self, count: int) -> Nanoseconds:
        assert count >= 1
        taken = np.array([self.duration_ms(self.runs + i) for i in range(count)])
        self.runs += count
        self.calls += 1
        self.spent_ms += float(taken.sum())
        return taken * 1e6


PLAN = TimingPlan(budget_ms=20.0)


def test_a_steady_kernel_is_known_after_few_runs() -> None:
    kernel = Kernel(lambda i: 0.4)
    timing, noisy = time_kernel(kernel, PLAN)
    assert timing.median_ms == timing.min_ms == pytest.approx(0.4)
    assert (timing.spread, timing.precision, noisy) == (0.0, 0.0, False)
    assert PLAN.min_samples <= len(timing.sample_ms) <= 2 * PLAN.budget_ms / 5 / 0.4
    assert kernel.spent_ms < PLAN.budget_ms


def test_the_warm_up_is_not_in_the_samples() -> None:
    """Twice as slow at first, and faster from run to run: as when caches fill and clocks rise."""
    kernel = Kernel(lambda i: 0.1 * (1 + 0.97**i))
    timing, noisy = time_kernel(kernel, PLAN)
    assert timing.median_ms == pytest.approx(0.1, rel=0.15)
    assert max(timing.sample_ms) < 0.18
    assert not noisy


@pytest.mark.parametrize("at_most", [1, 8, 1000])
def test_an_exact_number_of_samples_can_be_requested(at_most: int) -> None:
    """The device may return fewer values than requested, each the mean of several runs."""
    kernel = Kernel(lambda i: 3.0 if i < 2 else 0.2)
    timing, noisy = time_kernel(lambda count: kernel(min(count, at_most)), replace(PLAN, exact_samples=20))
    assert timing.sample_ms == pytest.approx((0.2,) * 20)
    assert not noisy
    slow = Kernel(lambda i: 50.0)
    timing, _ = time_kernel(slow, replace(PLAN, exact_samples=3))
    assert (len(timing.sample_ms), slow.runs) == (3, 4), "no warm-up for what is longer than the budget"


def test_a_noisy_kernel_is_sampled_for_longer_and_reported() -> None:
    generator = np.random.default_rng(1)
    kernel = Kernel(lambda i: float(generator.lognormal(1.0, 1.2)))
    timing, noisy = time_kernel(kernel, PLAN)
    assert noisy
    assert timing.precision > PLAN.noisy_above
    assert 3 * PLAN.budget_ms <= sum(timing.sample_ms) < 3 * PLAN.budget_ms + PLAN.budget_ms


def test_a_kernel_with_mild_noise_stops_at_its_budget() -> None:
    generator = np.random.default_rng(1)
    kernel = Kernel(lambda i: float(generator.normal(0.5, 0.03)))
    timing, noisy = time_kernel(kernel, PLAN)
    assert not noisy
    assert timing.precision < 0.10
    assert sum(timing.sample_ms) < 1.5 * PLAN.budget_ms
    assert timing.median_ms == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("duration_ms", [20.0, 500.0])
def test_a_kernel_longer_than_the_budget_is_timed_once(duration_ms: float) -> None:
    kernel = Kernel(lambda i: duration_ms)
    timing, noisy = time_kernel(kernel, PLAN)
    assert kernel.runs == 2
    assert timing.sample_ms == (duration_ms,)
    assert math.isnan(timing.precision)
    assert not noisy


def test_a_tiny_kernel_needs_few_batches() -> None:
    """Evaluating samples costs more than running a tiny kernel, so batches must be long or grow."""
    kernel = Kernel(lambda i: 0.001 * (1 + 0.001 * i))  # ever slower: never steady for the warm-up
    time_kernel(kernel, PLAN)
    assert kernel.runs > 1000
    assert kernel.calls <= 16


@settings(max_examples=80)
@given(
    median_ms=st.floats(0.0005, 200),
    sigma=st.floats(0, 1.5),
    budget_ms=st.floats(0.5, 100),
    max_samples=st.integers(10, 300),
    seed=st.integers(0, 2**32),
)
def test_every_kernel_ends_within_its_bounds(
    median_ms: float, sigma: float, budget_ms: float, max_samples: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    kernel = Kernel(lambda i: float(median_ms * np.exp(generator.normal(0, sigma))))
    plan = TimingPlan(budget_ms=budget_ms, max_samples=max_samples)
    timing, noisy = time_kernel(kernel, plan)
    samples = timing.sample_ms
    assert 1 <= len(samples) <= max_samples
    assert timing.min_ms == min(samples) <= timing.median_ms <= max(samples)
    assert noisy == (timing.precision > plan.noisy_above)
    # The last batch begins before three budgets are spent.
    longest = max(samples)
    assert sum(samples[: -max(1, int(budget_ms / 5 / 1e-4))]) < 3 * budget_ms + longest
    if sum(samples) < budget_ms and len(samples) < max_samples and kernel.runs > 2:
        assert timing.precision <= plan.precision


@settings(max_examples=100)
@given(samples=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=60), factor=st.sampled_from([0.5, 4.0]))
def test_a_summary_knows_order_and_scale(samples: list[float], factor: float) -> None:
    timing, scaled = summarise(np.array(samples)), summarise(factor * np.array(samples))
    assert timing.sample_ms == tuple(samples)
    assert timing.median_ms == pytest.approx(float(np.median(samples)))
    assert timing.min_ms == min(samples)
    low, high = np.percentile(samples, [25, 75])
    assert timing.spread == pytest.approx((high - low) / np.median(samples), abs=1e-9)
    assert math.isnan(timing.precision) == (len(samples) < 6)
    assert scaled.median_ms == pytest.approx(factor * timing.median_ms)
    assert scaled.spread == pytest.approx(timing.spread)
    assert scaled.precision == pytest.approx(timing.precision, nan_ok=True)
    assert summarise(np.sort(samples)).precision == pytest.approx(timing.precision, nan_ok=True)


SEQUENTIAL = replace(PLAN, sequential=True)


def test_a_kernel_that_cannot_lead_gets_a_few_samples_or_one() -> None:
    kernel, look = Kernel(lambda i: 0.4), Kernel(lambda i: 0.4)
    timing, noisy = time_kernel(kernel, SEQUENTIAL, look, best_ms=0.3)
    assert (kernel.runs, look.runs, noisy) == (0, 2, False)
    assert (timing.sampling, timing.median_ms, len(timing.sample_ms)) == (COARSE, 0.4, 2)
    assert timing.half_width == 0.0
    assert math.isnan(timing.precision), "two samples have no confidence interval"
    look = Kernel(lambda i: 1.0)
    timing, noisy = time_kernel(Kernel(lambda i: 1.0), SEQUENTIAL, look, best_ms=0.3)
    assert (look.runs, timing.sampling, timing.sample_ms, noisy) == (1, COARSE, (1.0,), False)
    assert math.isnan(timing.half_width)


@pytest.mark.parametrize("best_ms", [0.5, 0.4, 0.36, 0.35, None])
def test_a_kernel_that_may_lead_gets_the_full_plan(best_ms: float | None) -> None:
    kernel, look = Kernel(lambda i: 0.4), Kernel(lambda i: 0.4)
    timing, noisy = time_kernel(kernel, SEQUENTIAL, look, best_ms)
    alone, _ = time_kernel(Kernel(lambda i: 0.4), PLAN)
    assert timing == alone
    assert (timing.sampling, noisy) == (FULL, False)
    assert look.runs == (best_ms is not None)


def test_a_look_is_the_warm_up_of_the_full_plan() -> None:
    """If the first run takes what the look has shown, times are steady."""
    kernel, look = Kernel(lambda i: 0.4), Kernel(lambda i: 0.4)
    time_kernel(kernel, SEQUENTIAL, look, best_ms=0.4)
    assert kernel.runs == 1 + 10, "a batch of a fifth of the budget"
    rising = Kernel(lambda i: 0.4 * (1 + 0.5**i))
    timing, _ = time_kernel(rising, SEQUENTIAL, Kernel(lambda i: 0.4), best_ms=0.4)
    assert max(timing.sample_ms) < 0.45


def test_equal_and_exact_sampling_never_look() -> None:
    look = Kernel(lambda i: 9.0)
    timing, _ = time_kernel(Kernel(lambda i: 9.0), PLAN, look, best_ms=0.1)
    assert timing.sampling == FULL
    timing, _ = time_kernel(Kernel(lambda i: 9.0), replace(SEQUENTIAL, exact_samples=8), look, best_ms=0.1)
    assert (timing.sampling, len(timing.sample_ms)) == (EXACT, 8)
    assert look.runs == 0


def test_a_disturbed_first_sample_does_not_cost_a_kernel_its_place() -> None:
    """A pause makes one sample twice as long; the next shows that the kernel may lead."""
    look = Kernel(lambda i: 0.8 if i == 0 else 0.4)
    timing, _ = time_kernel(Kernel(lambda i: 0.4), SEQUENTIAL, look, best_ms=0.4)
    assert (look.runs, timing.sampling, timing.median_ms) == (2, FULL, 0.4)


def test_a_noisy_kernel_is_judged_by_the_full_plan() -> None:
    """Its samples are all slower than the best, but too different to say by how much."""
    generator = np.random.default_rng(3)

    def duration_ms(_: int) -> float:
        return float(0.6 + generator.exponential(1.0))

    look = Kernel(duration_ms)
    timing, noisy = time_kernel(Kernel(duration_ms), SEQUENTIAL, look, best_ms=0.5)
    assert look.runs == SEQUENTIAL.coarse_samples
    assert (timing.sampling, noisy) == (FULL, True)


def test_a_long_kernel_that_may_lead_is_timed_once() -> None:
    kernel, look = Kernel(lambda i: 500.0), Kernel(lambda i: 500.0 + i)
    timing, noisy = time_kernel(kernel, SEQUENTIAL, look, best_ms=500.0)
    assert (kernel.runs, look.runs, noisy) == (0, 2, False)
    assert (timing.sample_ms, timing.sampling) == ((501.0,), FULL)


@settings(max_examples=60)
@given(
    best_ms=st.floats(0.01, 20), ratio=st.floats(0.2, 10), sigma=st.floats(0, 0.2), seed=st.integers(0, 2**32)
)
def test_a_coarse_timing_is_never_near_the_best(
    best_ms: float, ratio: float, sigma: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    kernel = Kernel(lambda i: float(ratio * best_ms * np.exp(generator.normal(0, sigma))))
    timing, noisy = time_kernel(kernel, SEQUENTIAL, kernel, best_ms)
    assert noisy == (timing.sampling == FULL and timing.precision > PLAN.noisy_above)
    if timing.sampling == COARSE:
        assert timing.min_ms > 1.1 * best_ms
        assert timing.half_width <= SEQUENTIAL.coarse_precision or timing.min_ms > 3 * best_ms
        assert len(timing.sample_ms) <= SEQUENTIAL.coarse_samples
