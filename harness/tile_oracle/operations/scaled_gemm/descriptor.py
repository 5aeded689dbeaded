"""The descriptor of scaled products."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.part import deferred, part
from tile_oracle.operations.scaled_gemm.kernel import ScaledGemmKernel
from tile_oracle.operations.scaled_gemm.problem import OPERAND_DTYPES, SCALES, ScaledGemmProblem
from tile_oracle.operations.scaled_gemm.slices import SCALED_SLICES

SCALED_GEMM = Operation(
    name=ScaledGemmProblem.op,
    plural="scaled products",
    problem=ScaledGemmProblem,
    kernel=ScaledGemmKernel,
    parse_kernel=ScaledGemmKernel.parse,
    kind_fields={"dtype": tuple(OPERAND_DTYPES), "scale": SCALES},
    kind_words="operation, dtype and scale",
    kind_format="scaled_gemm {dtype} {scale}",
    kernel_prefix_format="scaled_gemm_{dtype}_{scale}_",
    id_prefixes=("scaled_gemm-",),
    id_pattern="scaled_gemm-[a-z0-9_]+-[a-z]+-m[0-9]+-n[0-9]+-k[0-9]+",
    short_names="columns[0-9]+",
    marks=("scale", "M"),
    required=("M", "N", "K"),
    defaults={"dtype": "fp8_e4m3", "scale": "block"},
    model_type="scaled_gemm",
    family_varies=("M",),
    fold_fields=("M", "N", "K"),
    slices=SCALED_SLICES,
    rules_key="scaled_gemm",
    read_rules=partial(deferred("tile_oracle.pool.sized_block:read_block"), ScaledGemmKernel),
    rules_folder=Path(__file__).with_name("rules"),
    refusals=deferred("tile_oracle.pool.sized_block:refusals"),
    cpu_source=deferred(".cpu_source:cpu_source", __package__),
    on_device=part(".on_device:WORKER", __package__),
    least_work=deferred(".least_work:least_work", __package__),
    on_gpu=part(".on_device:WORKER", __package__),
    triton_view=part(".triton_view:ScaledGemmView", __package__),
    terms={
        "columnsN": "columns of C that are computed at a time",
        "tensor, row, block": "what has a scale of its own: a matrix; a row of A or B; 1 x 128 of A and "
        "128 x 128 of B",
    },
    features=part(".features:SCALED_GEMM_FEATURES", __package__),
)
"""C = (A scale_a) (B scale_b)^T of fp8 matrices."""
