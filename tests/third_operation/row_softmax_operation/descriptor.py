"""The descriptor, which the entry point names."""

from __future__ import annotations

from pathlib import Path

from row_softmax_operation.kernel import SoftmaxKernel, cpu_source, parse_softmax_name
from row_softmax_operation.problem import SoftmaxProblem
from tile_oracle.operation import Operation, deferred, part

SOFTMAX = Operation(
    name="row_softmax",
    plural="softmaxes",
    problem=SoftmaxProblem,
    kernel=SoftmaxKernel,
    parse_kernel=parse_softmax_name,
    kind_fields={"dtype": ("fp32",)},
    kind_words="operation and dtype",
    kind_format="row_softmax {dtype}",
    kernel_prefix_format="row_softmax_{dtype}_",
    id_prefixes=("row_softmax-",),
    id_pattern="row_softmax-[a-z0-9]+-r[0-9]+-c[0-9]+",
    short_names="block[0-9]+",
    marks=("rows", "columns"),
    required=("rows", "columns"),
    defaults={"dtype": "fp32"},
    model_type="row_softmax",
    family_varies=("rows",),
    slices={"short rows": lambda p: p.columns < 64, "long rows": lambda p: p.columns >= 64},
    rules_key="row_softmax",
    read_rules=deferred(".rules:read_block", __package__),
    rules_folder=Path(__file__).with_name("rules"),
    refusals=deferred(".rules:refusals", __package__),
    cpu_source=cpu_source,
    on_device=part(".on_device", __package__),
    least_work=lambda problem: (problem.rows * problem.columns, 4 * problem.rows * problem.columns),
    features=part(".features:FEATURES", __package__),
)
