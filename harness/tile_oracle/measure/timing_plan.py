"""Settings for timing one kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimingPlan:
    """How long a kernel is timed.

    budget_ms: time for the samples of one kernel. A kernel that runs longer is timed once.
    precision: wanted half-width of the median's 95 % confidence interval, relative to the median.
    noisy_above: above this half-width the kernel is noisy, judged after three budgets and samples_to_judge
    samples, or after ten budgets.
    max_batch: most samples requested at a time.
    exact_samples: take exactly this many samples; None: as many as the precision needs.

    sequential: a kernel that cannot be among the fastest of its problem gets a few samples only. It cannot if
    all of its first samples are slower than the best so far by more than leaders_within + coarse_precision
    (relative), and are known to coarse_precision (half-width), or slower than far_behind times the best.
    coarse_samples: most samples to find that out. If its first checked run shows that it is far behind, that
    run is its sample, and its other checks are left out.
    """

    budget_ms: float = 20.0
    precision: float = 0.01
    noisy_above: float = 0.10
    min_samples: int = 7
    samples_to_judge: int = 15
    max_samples: int = 1000
    warm_up_fraction: float = 0.25
    max_batch: int = 1000
    exact_samples: int | None = None
    sequential: bool = False
    leaders_within: float = 0.10
    coarse_precision: float = 0.05
    far_behind: float = 3.0
    coarse_samples: int = 6
