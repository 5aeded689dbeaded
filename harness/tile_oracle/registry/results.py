"""What a `Registry` returns: picks, the output of a run, the outcome of tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tile_oracle.kernel import Kernel
from tile_oracle.registry.measuring import PoolMeasurements

TUNED, MODEL, MEASURED = "tuned", "model", "measured"
"""The sources of a pick."""


@dataclass(frozen=True)
class Pick:
    """A kernel for a problem. source: tuned (measured before, and kept), model, or measured (just now, since
    no model fits). predicted_tflops: the model's, None without one, and of a tuned pick that was asked for
    alone; measured_tflops: None of a mere prediction.

    note: what a person should know: why no model was used, which tuned result was stale.
    """

    kernel: Kernel
    source: str
    predicted_tflops: float | None = None
    measured_tflops: float | None = None
    model: str = ""
    note: str = ""


@dataclass(frozen=True)
class Failed:
    """A kernel that was picked and did not run. status: a word of tile_oracle.record.schema.STATUSES."""

    kernel: Kernel
    status: str
    detail: str


@dataclass(frozen=True)
class RunResult:
    """output: the result's array, `operand_shapes[2]` of the problem, as the dtype is stored. pick: what ran.

    failed: kernels that were picked before it and failed. cached: whether its binary was there already.
    """

    output: npt.NDArray[Any]
    pick: Pick
    failed: tuple[Failed, ...] = ()
    cached: bool = True

    @property
    def kernel(self) -> Kernel:
        return self.pick.kernel


@dataclass(frozen=True)
class Tuning:
    """The best kernel that was measured, and all that was measured to find it. kept: whether it is on
    disk."""

    pick: Pick
    measured: PoolMeasurements
    kept: bool
