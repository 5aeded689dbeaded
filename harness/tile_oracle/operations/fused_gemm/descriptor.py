"""The descriptor of fused products."""

from __future__ import annotations

from tile_oracle.kernel.sized import sized_operation
from tile_oracle.operations.fused_gemm.problem import DTYPES, EPILOGUES, FusedGemmKernel, FusedGemmProblem
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS
from tile_oracle.operations.gemm.words import GEMM_SLICES, slices_by

FUSED_GEMM = sized_operation(
    FusedGemmProblem,
    FusedGemmKernel,
    __package__,
    plural="fused products",
    kind_fields={"dtype": DTYPES, "layout": GEMM_LAYOUTS, "epilogue": tuple(EPILOGUES)},
    marks=("batch", "layout", "M"),
    defaults={"dtype": "bf16", "layout": "rcr", "epilogue": "none"},
    family_varies=("M", "batch"),
    fold_fields=("M", "N", "K", "batch"),
    slices={
        **{name: belongs for name, belongs in GEMM_SLICES.items() if name != "split K"},
        "batch": lambda p: p.batch > 1,
        **slices_by("epilogue", EPILOGUES, "epilogue {}"),
    },
    terms={
        "columnsN": "columns of C that are computed at a time",
        "bias, gelu, gelu_tanh, silu": "what a sum gets: a bias of its column, an activation",
        "mul, residual": "the result is multiplied by, or added to, another matrix",
    },
)
"""C = activation(A B + bias), times or plus D, in batches."""
