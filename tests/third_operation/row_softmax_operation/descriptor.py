"""The descriptor, which the entry point names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from row_softmax_operation.kernel import SoftmaxKernel, cpu_source, parse_softmax_name
from row_softmax_operation.problem import SoftmaxProblem
from tile_oracle.operation import Operation


def _read_rules(tree: Any, tile_lists: Mapping[str, Any]) -> Any:
    from row_softmax_operation.rules import read_block

    return read_block(tree, tile_lists)


def _refusals(arch: Any, kernel: SoftmaxKernel) -> Iterator[str]:
    from row_softmax_operation.rules import refusals

    return refusals(arch, kernel)


def _on_device() -> ModuleType:
    from row_softmax_operation import on_device

    return on_device


def _features() -> Any:
    from row_softmax_operation.features import FEATURES

    return FEATURES


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
    read_rules=_read_rules,
    rules_folder=Path(__file__).with_name("rules"),
    refusals=_refusals,
    problem_refusals=lambda arch, kernel, problem: iter(()),
    cpu_source=cpu_source,
    on_device=_on_device,
    features=_features,
)
