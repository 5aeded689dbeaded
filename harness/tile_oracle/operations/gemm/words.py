"""The words for GEMMs: slices, and terms in names of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from tile_oracle.operation.descriptor import Belongs
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS

# ---- Slices of GEMMs, for describing problem sets and breaking down results ----------------------


def slices_by(field: str, words: Iterable[str], name: str = "{}") -> dict[str, Belongs]:
    """Returns a slice for each value of a field, with this format of its name."""
    return {name.format(word): partial(_has, field, word) for word in words}


def _has(field: str, word: str, problem: Any) -> bool:
    return bool(getattr(problem, field) == word)


GEMM_SLICES: Mapping[str, Belongs] = MappingProxyType(
    {
        "tiny M": lambda p: p.M < 8,
        "small M": lambda p: 8 <= p.M < 128,
        "medium M": lambda p: 128 <= p.M < 1024,
        "large M": lambda p: p.M >= 1024,
        "N or K of 1": lambda p: 1 in (p.N, p.K),
        "odd N or K": lambda p: bool(p.N % 8 or p.K % 8) and 1 not in (p.N, p.K),
        "deep": lambda p: 4 * max(p.M, p.N) <= p.K,
        "split K": lambda p: p.split_k > 1,
        **slices_by("layout", GEMM_LAYOUTS),
    }
)
"""Slices of GEMMs; the bands of M are the published ones."""

# ---- The words in names of kernels that multiply matrices tile by tile ---------------------------

TILED_TERMS: Mapping[str, str] = {
    "MxNxK": "rows, columns and depth of a workgroup's tile of the product, in elements",
    "compvN": "pipelines in which loading the next tiles overlaps multiplying",
    "mem": "pipeline for problems that memory limits: several tiles are loaded ahead",
    "basic": "pipeline that loads a tile, waits, and multiplies it",
    "async": "in a pipeline's name: global memory is copied to LDS without registers between",
    "intrawave": "scheduler: each wave mixes its reads of LDS with matrix instructions",
    "interwave": "scheduler: waves take turns: some read while others multiply",
    "cshuffle": "epilogue that reorders the result in LDS before it is stored",
}

GEMM_TERMS: Mapping[str, str] = {
    **TILED_TERMS,
    "True, False": "in this order: partial tiles along M, N and K; persistent workgroups",
    "tdm": "pipelines and an epilogue whose tiles the tensor data mover of gfx1250 moves",
    "three sizes": "tile, waves along its axes, and tile of one matrix instruction sequence",
    "rcr": "layout of A, B and C: r is row-major, c is column-major",
}
"""Of GEMMs."""
