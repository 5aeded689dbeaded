"""The project's own fused products for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel


@dataclass(frozen=True)
class FusedGemmKernel(SizedKernel):
    """One kernel. columns: of C, how many it takes at a time."""

    dtype: str
    layout: str
    epilogue: str
    columns: int

    op = "fused_gemm"
    sizes: ClassVar = {"columns": (1, 4, 16)}
