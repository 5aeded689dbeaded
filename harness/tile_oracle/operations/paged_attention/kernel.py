"""The project's own kernels of attention over paged caches for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel


@dataclass(frozen=True)
class PagedAttentionKernel(SizedKernel):
    """One kernel. keys: how many it takes at a time."""

    dtype: str
    kv_dtype: str
    head_dim: int
    keys: int

    op = "paged_attention"
    sizes: ClassVar = {"keys": (8, 32, 128)}
