"""The words in names of kernels that multiply matrices tile by tile."""

from __future__ import annotations

from collections.abc import Mapping

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
