"""The measurement of one pair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.record.schema import ROUND_SWEEP
from tile_oracle.targets.device_state import DeviceState

_NUMBERS = ("latency_ms", "latency_min_ms", "spread", "tflops", "busy_ms", "check_ms", "at_least_ms")
"""The columns that are NaN where they are unknown."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement. `tflops` and the latencies are NaN unless the status is ok or noisy.

    latency_ms: median of the samples. latency_min_ms: fastest sample. spread: interquartile range divided by
    the median. samples: number of samples. precision: half-width of the median's interval / the median.
    sampling: full, coarse, exact or censored (tile_oracle.device.timing), "" if unknown. check: full,
    product, spot or none. busy_ms: time of warm-up and timed runs by the device's clock.
    check_ms: time of checks by the host's clock. state: clocks, temperature and throttling, if known. facts:
    the driver's facts about the loaded kernel, if known. known_failure: the status of the pair if the
    baseline lists it as a known failure, else "". at_least_ms: the least time of a kernel that had lost by
    its first checked run, whose time latency_ms is; else NaN.
    """

    problem: Problem
    kernel: Kernel
    status: str
    detail: str = ""
    round: int = ROUND_SWEEP
    latency_ms: float = math.nan
    latency_min_ms: float = math.nan
    spread: float = math.nan
    samples: int = 0
    check: str = "none"
    check_points: int = 0
    busy_ms: float = math.nan
    check_ms: float = math.nan
    state: DeviceState = DeviceState()  # noqa: RUF009  frozen
    facts: Mapping[str, int] = field(default_factory=dict)
    sample_ms: tuple[float, ...] = ()
    resumed: bool = False
    known_failure: str = ""
    precision: float | None = None
    sampling: str = ""
    at_least_ms: float = math.nan

    @property
    def is_censored(self) -> bool:
        """Whether only a lower bound of its time is known, and not all checks were made."""
        return not math.isnan(self.at_least_ms)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def tflops(self) -> float:
        """The problem's floating-point operations per second, in units of 1e12."""
        return self.problem.tflops(self.latency_ms) if self.latency_ms > 0 else math.nan

    def as_row(self) -> dict[str, Any]:
        """Returns the columns that depend on this measurement; NaN becomes null."""
        numbers = ((name, getattr(self, name)) for name in _NUMBERS)
        return {
            "round": self.round,
            "op": self.problem.op,
            "problem": self.problem.id,
            **self.problem.as_row(),
            "kernel": self.kernel.name,
            **self.kernel.as_row(),
            "status": self.status,
            "detail": self.detail,
            **{name: None if math.isnan(value) else value for name, value in numbers},
            "samples": self.samples,
            "precision": self.precision,
            "sampling": self.sampling or None,
            "check": self.check,
            "check_points": self.check_points,
            **self.state.as_row(),
        }
