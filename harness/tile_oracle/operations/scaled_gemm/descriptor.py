"""The descriptor of scaled products."""

from __future__ import annotations

from tile_oracle.kernel.sized import sized_operation
from tile_oracle.operations.gemm.words import GEMM_SLICES, slices_by
from tile_oracle.operations.scaled_gemm.problem import (
    OPERAND_DTYPES,
    SCALES,
    ScaledGemmKernel,
    ScaledGemmProblem,
    is_kind,
)

SCALED_GEMM = sized_operation(
    ScaledGemmProblem,
    ScaledGemmKernel,
    __package__,
    plural="scaled products",
    kind_fields={"dtype": tuple(OPERAND_DTYPES), "scale": SCALES},
    is_kind=is_kind,
    marks=("scale", "M"),
    defaults={"dtype": "fp8_e4m3", "scale": "block"},
    family_varies=("M",),
    fold_fields=("M", "N", "K"),
    slices={
        **{name: belongs for name, belongs in GEMM_SLICES.items() if name.endswith(" M") or name == "deep"},
        "N or K no multiple of 16": lambda p: bool(p.N % 16 or p.K % 16),
        **slices_by("scale", SCALES, "scale {}"),
    },
    terms={
        "columnsN": "columns of C that are computed at a time",
        "tensor, row, block": "what has a scale of its own: a matrix; a row of A or B; 1 x 128 of A and "
        "128 x 128 of B",
        "mx": "OCP Microscaling: an e8m0 for each 1 x 32 of A and of B",
    },
)
"""C = (A scale_a) (B scale_b)^T of fp8 and fp4 matrices."""
