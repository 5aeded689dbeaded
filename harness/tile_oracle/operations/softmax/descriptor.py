"""The descriptor of softmax."""

from __future__ import annotations

from tile_oracle.operation.part import part
from tile_oracle.operations.rowwise.row_operation import row_operation
from tile_oracle.operations.softmax.kernel import SoftmaxKernel, cpu_source
from tile_oracle.operations.softmax.problem import SoftmaxProblem

SOFTMAX = row_operation(
    SoftmaxProblem,
    SoftmaxKernel,
    plural="softmaxes",
    package=__package__,
    cpu_source=cpu_source,
    triton_view=part("tile_oracle.operations.rowwise.triton_view:SoftmaxView"),
)
