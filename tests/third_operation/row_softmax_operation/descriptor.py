"""The descriptor, which the entry point names."""

from __future__ import annotations

from row_softmax_operation.kernel import SoftmaxKernel
from row_softmax_operation.problem import SoftmaxProblem
from tile_oracle.kernel.sized import sized_operation
from tile_oracle.operation import part

SOFTMAX = sized_operation(
    SoftmaxProblem,
    SoftmaxKernel,
    __package__,
    plural="softmaxes",
    kind_fields={"dtype": ("fp32",)},
    marks=("rows", "columns"),
    defaults={"dtype": "fp32"},
    family_varies=("rows",),
    slices={"short rows": lambda p: p.columns < 64, "long rows": lambda p: p.columns >= 64},
    cpu_source=SoftmaxKernel.cpu_source,
    on_device=part(".on_device", __package__),
    least_work=lambda problem: (problem.rows * problem.columns, problem.operand_bytes),
    on_gpu=None,
    triton_view=None,
)
