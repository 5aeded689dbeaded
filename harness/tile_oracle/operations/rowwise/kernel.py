"""The project's own kernels on rows for the target cpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel


@dataclass(frozen=True)
class RowKernel(SizedKernel):
    """One kernel. lanes: elements that it reduces in parallel."""

    dtype: str
    lanes: int

    sizes: ClassVar = {"lanes": (1, 4, 16, 32)}
