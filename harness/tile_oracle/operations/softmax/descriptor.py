"""The descriptor of softmax."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.operations.rowwise.row_operation import row_operation
from tile_oracle.operations.softmax.kernel import SoftmaxKernel, cpu_source
from tile_oracle.operations.softmax.problem import SoftmaxProblem

if TYPE_CHECKING:
    from tile_oracle.triton.views import ProblemView


def _triton_view() -> type[ProblemView]:
    from tile_oracle.operations.rowwise.triton_view import SoftmaxView

    return SoftmaxView


SOFTMAX = row_operation(
    SoftmaxProblem,
    SoftmaxKernel,
    plural="softmaxes",
    folder=Path(__file__).parent,
    cpu_source=cpu_source,
    triton_view=_triton_view,
)
