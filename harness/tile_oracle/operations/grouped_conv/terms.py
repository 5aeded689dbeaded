"""The words in names of convolution kernels."""

from __future__ import annotations

from collections.abc import Mapping

from tile_oracle.operations.gemm.terms import TILED_TERMS

CONV_TERMS: Mapping[str, str] = {
    **TILED_TERMS,
    "dsb": "double buffer in LDS (NVIDIA: shared memory): one is filled while the other is read",
    "si": "split image: no tile holds pixels of two images",
    "wMxNxK": "waves along each axis of the tile",
    "wtMxNxK": "tile of one matrix instruction sequence of a wave",
    "vAxBxC": "elements of each global load of A and B, and of each store of C",
    "gmN": "a workgroup computes N groups as one GEMM",
    "eg": "explicit GEMM: a 1x1 convolution runs as a plain matrix product",
    "2s": "two stages: the depth is split; a second kernel adds the partial sums",
    "epdefault": "default epilogue: results are stored from registers, not reordered in LDS",
    "f1x1p0, f1x1s1p0, f3x3": "specialization: only for these filters, strides (s) and paddings (p)",
    "padMNK": "bits: whether partial tiles along M, N and K are handled; all are where it is absent",
}
"""Of grouped convolutions."""
