"""The descriptor of GEMM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tile_oracle.operation.bands import BANDS
from tile_oracle.operation.descriptor import Operation, RuleBlock
from tile_oracle.operations.gemm.arguments import arguments
from tile_oracle.operations.gemm.kernel import GemmKernel, parse_gemm_name
from tile_oracle.operations.gemm.pointwise import DIRECTION_OF_LAYOUT, result_transposed
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.gemm.slices import GEMM_SLICES
from tile_oracle.operations.gemm.terms import GEMM_TERMS
from tile_oracle.operations.grouped_conv.cpu_source import cpu_source

if TYPE_CHECKING:
    from tile_oracle.arch import Arch
    from tile_oracle.features.operation_features import OperationFeatures
    from tile_oracle.json_tree import JsonTree
    from tile_oracle.operation.ck_tile import CkTileUnits
    from tile_oracle.operation.gpu_source import GpuSource
    from tile_oracle.operation.on_device import OnDevice
    from tile_oracle.operation.on_gpu import OnGpu
    from tile_oracle.operation.search_axes import SearchAxes
    from tile_oracle.triton.views import ProblemView


def _read_rules(tree: JsonTree, tile_lists: Mapping[str, JsonTree]) -> RuleBlock:
    from tile_oracle.operations.gemm.rules import read_block

    return read_block(tree, tile_lists)


def _refusals(arch: Arch, kernel: GemmKernel) -> Iterator[str]:
    from tile_oracle.operations.gemm.refusals import refusals

    return refusals(arch, kernel)


def _problem_refusals(arch: Arch, kernel: GemmKernel, problem: GemmProblem) -> Iterator[str]:
    from tile_oracle.operations.gemm.refusals import problem_refusals

    return problem_refusals(arch, kernel, problem)


def _cpu_source(kernel: GemmKernel) -> str:
    """A GEMM is a 1x1 convolution: it has that convolution's source and shares its binary. Only ccr differs,
    whose result is transposed."""
    return cpu_source(kernel, DIRECTION_OF_LAYOUT[kernel.layout], 2, result_transposed(kernel.layout))


def _gpu_source() -> GpuSource:
    from tile_oracle.operations.gemm import gpu_source

    return gpu_source


def _ck_tile() -> CkTileUnits:
    from tile_oracle.operations.gemm import ck_tile

    return ck_tile


def _triton_view() -> type[ProblemView]:
    from tile_oracle.operations.gemm.triton_view import GemmView

    return GemmView


def _on_device() -> OnDevice:
    from tile_oracle.operations.gemm import on_device

    return on_device


def _on_gpu() -> OnGpu:
    from tile_oracle.operations.gemm import on_gpu

    return on_gpu


def _search() -> SearchAxes:
    from tile_oracle.operations.gemm import search

    return search


def _features() -> OperationFeatures:
    from tile_oracle.features.schemas import GEMM_FEATURES

    return GEMM_FEATURES


GEMM = Operation(
    name=GemmProblem.op,
    plural="GEMMs",
    problem=GemmProblem,
    kernel=GemmKernel,
    parse_kernel=parse_gemm_name,
    kind_fields={"dtype": GEMM_DTYPES, "layout": GEMM_LAYOUTS},
    kind_words="operation, dtype and layout",
    kind_format="gemm {dtype} {layout}",
    kernel_prefix_format="gemm_{dtype}_{layout}_",
    id_prefixes=("gemm-",),
    id_pattern=r"gemm-[a-z0-9]+-[rc]{3}-m[0-9]+-n[0-9]+-k[0-9]+(?:-s[0-9]+)?",
    short_names=r"[a-z0-9_]+(?:_True|_False){4}(?:_[0-9]+x[0-9]+x[0-9]+){3}",
    marks=("layout", "M"),
    required=("M", "N", "K"),
    model_type="gemm_universal",
    defaults={"dtype": "bf16", "layout": "rcr"},
    family_varies=("M",),
    fold_fields=("M", "N", "K"),
    slices=GEMM_SLICES,
    bands={**BANDS, "K no multiple of 16": lambda p: bool(p.K % 16)},
    rules_key="gemm",
    read_rules=_read_rules,
    refusals=_refusals,
    problem_refusals=_problem_refusals,
    cpu_source=_cpu_source,
    gpu_source=_gpu_source,
    ck_tile=_ck_tile,
    on_device=_on_device,
    on_gpu=_on_gpu,
    triton_view=_triton_view,
    arguments=arguments,
    terms=GEMM_TERMS,
    features=_features,
    search=_search,
)
"""GEMM: C = A B."""
