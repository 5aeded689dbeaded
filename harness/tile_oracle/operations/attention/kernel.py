"""The project's own attention kernels for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel


@dataclass(frozen=True)
class AttentionKernel(SizedKernel):
    """One kernel. keys: how many it takes at a time."""

    dtype: str
    head_dim: int
    causal: int
    keys: int

    op = "attention"
    sizes: ClassVar = {"keys": (8, 32, 128)}
