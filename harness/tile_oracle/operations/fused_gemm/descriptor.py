"""The descriptor of fused products."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.part import deferred, part
from tile_oracle.operations.fused_gemm.epilogues import EPILOGUES
from tile_oracle.operations.fused_gemm.kernel import FusedGemmKernel
from tile_oracle.operations.fused_gemm.problem import DTYPES, FusedGemmProblem
from tile_oracle.operations.fused_gemm.slices import FUSED_SLICES
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS

FUSED_GEMM = Operation(
    name=FusedGemmProblem.op,
    plural="fused products",
    problem=FusedGemmProblem,
    kernel=FusedGemmKernel,
    parse_kernel=FusedGemmKernel.parse,
    kind_fields={"dtype": DTYPES, "layout": GEMM_LAYOUTS, "epilogue": tuple(EPILOGUES)},
    kind_words="operation, dtype, layout and epilogue",
    kind_format="fused_gemm {dtype} {layout} {epilogue}",
    kernel_prefix_format="fused_gemm_{dtype}_{layout}_{epilogue}_",
    id_prefixes=("fused_gemm-",),
    id_pattern="fused_gemm-[a-z0-9]+-[rc]{3}-[a-z_]+-m[0-9]+-n[0-9]+-k[0-9]+(?:-b[0-9]+)?",
    short_names="columns[0-9]+",
    marks=("batch", "layout", "M"),
    required=("M", "N", "K"),
    defaults={"dtype": "bf16", "layout": "rcr", "epilogue": "none"},
    model_type="fused_gemm",
    family_varies=("M", "batch"),
    fold_fields=("M", "N", "K", "batch"),
    slices=FUSED_SLICES,
    rules_key="fused_gemm",
    read_rules=partial(deferred("tile_oracle.pool.sized_block:read_block"), FusedGemmKernel),
    rules_folder=Path(__file__).with_name("rules"),
    refusals=deferred("tile_oracle.pool.sized_block:refusals"),
    cpu_source=deferred(".cpu_source:cpu_source", __package__),
    on_device=part(".on_device:WORKER", __package__),
    least_work=deferred(".least_work:least_work", __package__),
    on_gpu=part(".on_device:WORKER", __package__),
    triton_view=part(".triton_view:FusedGemmView", __package__),
    terms={
        "columnsN": "columns of C that are computed at a time",
        "bias, gelu, gelu_tanh, silu": "what a sum gets: a bias of its column, an activation",
        "mul, residual": "the result is multiplied by, or added to, another matrix",
    },
    features=part(".features:FUSED_GEMM_FEATURES", __package__),
)
"""C = activation(A B + bias), times or plus D, in batches."""
