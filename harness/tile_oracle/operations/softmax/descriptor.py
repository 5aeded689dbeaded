"""The descriptor of softmax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.operation.descriptor import Operation, RuleBlock
from tile_oracle.operations.rowwise.problem import ROW_DTYPES
from tile_oracle.operations.rowwise.slices import ROW_SLICES
from tile_oracle.operations.softmax.kernel import SoftmaxKernel, cpu_source
from tile_oracle.operations.softmax.problem import SoftmaxProblem

if TYPE_CHECKING:
    from tile_oracle.arch import Arch
    from tile_oracle.features.operation_features import OperationFeatures
    from tile_oracle.json_tree import JsonTree
    from tile_oracle.operation.on_device import OnDevice
    from tile_oracle.operation.on_gpu import OnGpu
    from tile_oracle.triton.views import ProblemView


def _read_rules(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> RuleBlock:
    from tile_oracle.operations.rowwise.rules import read_block

    return read_block(SoftmaxKernel, tree)


def _refusals(arch: Arch, kernel: SoftmaxKernel) -> Iterator[str]:
    from tile_oracle.operations.rowwise.rules import refusals

    return refusals(arch, kernel)


def _on_device() -> OnDevice:
    from tile_oracle.operations.softmax import on_device

    return on_device.WORKER


def _on_gpu() -> OnGpu:
    from tile_oracle.operations.softmax import on_device

    return on_device.WORKER


def _triton_view() -> type[ProblemView]:
    from tile_oracle.operations.rowwise.triton_view import SoftmaxView

    return SoftmaxView


def _features() -> OperationFeatures:
    from tile_oracle.operations.rowwise.features import row_features

    return row_features(SoftmaxProblem, "rows", "length")


SOFTMAX = Operation(
    name=SoftmaxProblem.op,
    plural="softmaxes",
    problem=SoftmaxProblem,
    kernel=SoftmaxKernel,
    parse_kernel=SoftmaxKernel.parse,
    kind_fields={"dtype": ROW_DTYPES},
    kind_words="operation and dtype",
    kind_format="softmax {dtype}",
    kernel_prefix_format="softmax_{dtype}_",
    id_prefixes=("softmax-",),
    id_pattern="softmax-[a-z0-9]+-r[0-9]+-c[0-9]+",
    short_names="lanes[0-9]+",
    marks=("length",),
    required=("rows", "length"),
    defaults={"dtype": "bf16"},
    model_type="softmax",
    family_varies=("rows",),
    fold_fields=("length",),
    slices=ROW_SLICES,
    rules_key="softmax",
    read_rules=_read_rules,
    rules_folder=Path(__file__).with_name("rules"),
    refusals=_refusals,
    problem_refusals=lambda arch, kernel, problem: iter(()),
    cpu_source=cpu_source,
    on_device=_on_device,
    on_gpu=_on_gpu,
    triton_view=_triton_view,
    features=_features,
)
