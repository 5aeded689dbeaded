"""What came of one pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from harness.kernel import Kernel
from harness.problem import Problem
from harness.record.schema import ROUND_SWEEP


@dataclass(frozen=True)
class Measurement:
    """One measurement. `tflops` and the latencies are NaN unless the status is ok or noisy.

    latency_ms: median of the samples; latency_min_ms: fastest sample; spread: interquartile range over
    median; samples: how many were timed; check: full, spot or none. known_failure: the status with which
    the baseline says that the pair fails, "" where it says nothing.
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
    sample_ms: tuple[float, ...] = ()
    resumed: bool = False
    known_failure: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def tflops(self) -> float:
        """The problem's floating-point operations a second, in units of 1e12."""
        return self.problem.tflops(self.latency_ms) if self.latency_ms > 0 else math.nan

    def as_row(self) -> dict[str, Any]:
        """The columns that depend on this measurement; NaN becomes null."""
        numbers = {
            "latency_ms": self.latency_ms,
            "latency_min_ms": self.latency_min_ms,
            "spread": self.spread,
            "tflops": self.tflops,
        }
        return {
            "round": self.round,
            "op": self.problem.op,
            "problem": self.problem.id,
            **self.problem.as_row(),
            "kernel": self.kernel.name,
            **self.kernel.as_row(),
            "status": self.status,
            "detail": self.detail,
            **{name: None if math.isnan(value) else value for name, value in numbers.items()},
            "samples": self.samples,
            "check": self.check,
            "check_points": self.check_points,
        }
