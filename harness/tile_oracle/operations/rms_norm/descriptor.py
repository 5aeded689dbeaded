"""The descriptor of rms_norm."""

from __future__ import annotations

from tile_oracle.operation.part import part
from tile_oracle.operations.rms_norm.kernel import RmsNormKernel, cpu_source
from tile_oracle.operations.rms_norm.problem import RmsNormProblem
from tile_oracle.operations.rowwise.row_operation import row_operation

RMS_NORM = row_operation(
    RmsNormProblem,
    RmsNormKernel,
    plural="RMS normalizations",
    package=__package__,
    cpu_source=cpu_source,
    triton_view=part("tile_oracle.operations.rowwise.triton_view:RmsNormView"),
)
