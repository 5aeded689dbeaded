"""Settings for measuring the kernels of a problem."""

from __future__ import annotations

from dataclasses import dataclass, field

from tile_oracle.measure.timing_plan import TimingPlan


@dataclass(frozen=True)
class SweepSettings:
    """How a problem is measured.

    timeout_s: time limit for one kernel, or None for the target's default.
    leaders_within: kernels slower than the best by at most this fraction are measured again, at most
    max_leaders of them and at most max_noisy noisy ones.
    final_passes: number of interleaved passes over the leaders. In a pass, each leader gets final_budget_ms
    and at most final_samples samples. final_total_ms reduces the number of passes for long kernels.
    cold_cache: flush the caches before each timed run. keep_samples: measurements carry every sample.
    """

    timing: TimingPlan = field(default_factory=TimingPlan)
    seed: int = 20260
    timeout_s: float | None = None
    leaders_within: float = 0.10
    max_leaders: int = 6
    max_noisy: int = 16
    final_passes: int = 5
    final_budget_ms: float = 4.0
    final_samples: int = 100
    final_total_ms: float = 2000.0
    cold_cache: bool = False
    keep_samples: bool = False
