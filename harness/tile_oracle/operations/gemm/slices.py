"""Slices of GEMMs, for describing problem sets and breaking down results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem


def _of_layout(layout: str) -> Callable[[GemmProblem], bool]:
    return lambda problem: problem.layout == layout


GEMM_SLICES: Mapping[str, Callable[[GemmProblem], bool]] = MappingProxyType(
    {
        "tiny M": lambda p: p.M < 8,
        "small M": lambda p: 8 <= p.M < 128,
        "medium M": lambda p: 128 <= p.M < 1024,
        "large M": lambda p: p.M >= 1024,
        "N or K of 1": lambda p: 1 in (p.N, p.K),
        "odd N or K": lambda p: bool(p.N % 8 or p.K % 8) and 1 not in (p.N, p.K),
        "deep": lambda p: 4 * max(p.M, p.N) <= p.K,
        "split K": lambda p: p.split_k > 1,
        **{layout: _of_layout(layout) for layout in GEMM_LAYOUTS},
    }
)
"""Slices of GEMMs; the bands of M are the published ones."""
