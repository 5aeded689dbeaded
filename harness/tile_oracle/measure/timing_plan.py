"""How long a kernel is timed, as a session asks for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimingPlan:
    """budget_ms: time for the samples of one kernel; a kernel that runs longer than that is timed once.

    precision: wanted half-width of the median's 95 % confidence interval, relative to the median.
    noisy_above: the same, above which the figure is not to be trusted after three budgets and
    samples_to_judge samples, or ten budgets. max_batch: samples asked for at a time. exact_samples: take just
    so many, whatever they say; None: as many as it takes.
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
