"""The descriptor of rms_norm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.operations.rms_norm.kernel import RmsNormKernel, cpu_source
from tile_oracle.operations.rms_norm.problem import RmsNormProblem
from tile_oracle.operations.rowwise.row_operation import row_operation

if TYPE_CHECKING:
    from tile_oracle.triton.views import ProblemView


def _triton_view() -> type[ProblemView]:
    from tile_oracle.operations.rowwise.triton_view import RmsNormView

    return RmsNormView


RMS_NORM = row_operation(
    RmsNormProblem,
    RmsNormKernel,
    plural="RMS normalizations",
    folder=Path(__file__).parent,
    cpu_source=cpu_source,
    triton_view=_triton_view,
)
