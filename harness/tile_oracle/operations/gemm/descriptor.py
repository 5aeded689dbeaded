"""The descriptor of GEMM."""

from __future__ import annotations

from tile_oracle.operation.bands import BANDS
from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.least_work import least_work_of_products
from tile_oracle.operation.part import deferred, part
from tile_oracle.operations.gemm.kernel import GemmKernel, parse_gemm_name
from tile_oracle.operations.gemm.pointwise import DIRECTION_OF_LAYOUT, result_transposed
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.gemm.words import GEMM_SLICES, GEMM_TERMS
from tile_oracle.operations.grouped_conv.cpu_source import cpu_source


def _cpu_source(kernel: GemmKernel) -> str:
    """A GEMM is a 1x1 convolution: it has that convolution's source and shares its binary. Only ccr differs,
    whose result is transposed."""
    return cpu_source(kernel, DIRECTION_OF_LAYOUT[kernel.layout], 2, result_transposed(kernel.layout))


GEMM = Operation(
    plural="GEMMs",
    problem=GemmProblem,
    kernel=GemmKernel,
    parse_kernel=parse_gemm_name,
    kind_fields={"dtype": GEMM_DTYPES, "layout": GEMM_LAYOUTS},
    short_names=r"[a-z0-9_]+(?:_True|_False){4}(?:_[0-9]+x[0-9]+x[0-9]+){3}",
    marks=("layout", "M"),
    model_type="gemm_universal",
    defaults={"dtype": "bf16", "layout": "rcr"},
    family_varies=("M",),
    fold_fields=("M", "N", "K"),
    slices=GEMM_SLICES,
    bands={**BANDS, "K no multiple of 16": lambda p: bool(p.K % 16)},
    read_rules=deferred(".rules:read_block", __package__),
    refusals=deferred(".refusals:refusals", __package__),
    problem_refusals=deferred(".refusals:problem_refusals", __package__),
    cpu_source=_cpu_source,
    gpu_source=part(".gpu_source", __package__),
    ck_tile=part(".ck_tile", __package__),
    on_device=part(".on_device", __package__),
    least_work=least_work_of_products,
    on_gpu=part(".on_gpu", __package__),
    triton_view=part(".triton_view:GemmView", __package__),
    terms=GEMM_TERMS,
    features=part("tile_oracle.features.schemas:GEMM_FEATURES"),
    search=part(".search", __package__),
)
"""GEMM: C = A B."""
