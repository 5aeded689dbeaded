"""Results of a `Registry`: picks, and the output of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tile_oracle.kernel import Kernel


@dataclass(frozen=True)
class Pick:
    """A model's kernel for a problem. predicted_tflops: None if the model only orders kernels."""

    kernel: Kernel
    model: str
    predicted_tflops: float | None = None


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
