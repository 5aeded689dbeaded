"""Slices of scaled products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tile_oracle.operation.descriptor import Belongs
from tile_oracle.operations.gemm.slices import GEMM_SLICES
from tile_oracle.operations.scaled_gemm.problem import SCALES


def _scaled_by(scale: str) -> Callable[..., bool]:
    return lambda problem: problem.scale == scale


SCALED_SLICES: Mapping[str, Belongs] = MappingProxyType(
    {
        **{name: belongs for name, belongs in GEMM_SLICES.items() if name.endswith(" M") or name == "deep"},
        "N or K no multiple of 16": lambda p: bool(p.N % 16 or p.K % 16),
        **{f"scale {scale}": _scaled_by(scale) for scale in SCALES},
    }
)
"""Name -> whether a problem is in the slice."""
