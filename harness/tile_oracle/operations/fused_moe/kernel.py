"""The project's own products of experts for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel
from tile_oracle.operations.fused_moe.problem import BLOCKS


@dataclass(frozen=True)
class FusedMoeKernel(SizedKernel):
    """One kernel. rows: of a block of sorted pairs; 1: pairs in the order of tokens, without the lists.
    columns: of the result that are computed at a time."""

    dtype: str
    product: str
    rows: int
    columns: int

    op = "fused_moe"
    sizes: ClassVar = {"rows": (1, *BLOCKS), "columns": (1, 4, 16)}
