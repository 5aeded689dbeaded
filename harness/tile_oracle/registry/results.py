"""Results of a `Registry`: picks, and the output of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tile_oracle.kernel import Kernel

TUNED, MODEL = "tuned", "model"
"""The sources of a pick."""


@dataclass(frozen=True)
class Pick:
    """A kernel for a problem.

    source: tuned (measured earlier and stored) or model. predicted_tflops: the model's prediction; None
    without a model and for a tuned pick from `select`. measured_tflops: None if it was only predicted. note:
    a remark for the user, such as which tuned result was stale.
    """

    kernel: Kernel
    source: str
    predicted_tflops: float | None = None
    measured_tflops: float | None = None
    model: str = ""
    note: str = ""


@dataclass(frozen=True)
class Failed:
    """A picked kernel that did not run. status: one of tile_oracle.record.schema.STATUSES."""

    kernel: Kernel
    status: str
    detail: str


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run.

    output: the result in the dtype's storage format, with the shape `operand_shapes[2]` of the problem. pick:
    the kernel that ran. failed: earlier picks, which failed. cached: whether the binary was already built.
    """

    output: npt.NDArray[Any]
    pick: Pick
    failed: tuple[Failed, ...] = ()
    cached: bool = True

    @property
    def kernel(self) -> Kernel:
        return self.pick.kernel
