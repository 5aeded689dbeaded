"""The project's own scaled products for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel


@dataclass(frozen=True)
class ScaledGemmKernel(SizedKernel):
    """One kernel. columns: of C, how many it takes at a time."""

    dtype: str
    scale: str
    columns: int

    op = "scaled_gemm"
    sizes: ClassVar = {"columns": (1, 4, 16)}
