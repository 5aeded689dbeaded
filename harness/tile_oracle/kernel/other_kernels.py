"""Names of kernels that Composable Kernel and tile_engine have and no operation here has."""

from __future__ import annotations

import re

_OTHERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(words), what)
    for words, what in (
        (r"direct_(?:tile_)?conv", "a direct convolution, not an implicit GEMM"),
        (r"wavelet", "a GEMM with waves that only load (wavelet)"),
        (r"depthwise|[0-9]+(?:\s*,\s*[0-9]+){11}", "a depthwise convolution of images in NGCHW"),
        (r"stream_?k", "stream-K, which shares tiles among workgroups"),
        (r"quant|block_?scale|gemm_mx|mx_gemm", "a GEMM with scales of rows or blocks"),
        (r"gemm_batched|batched_(?:gemm|contraction)|_batched_", "a batched GEMM"),
        (r"gemm_grouped|grouped_gemm", "a grouped GEMM"),
        (r"_multi_|_multiple_|_bias_|_scale_", "one with further operands, of unstated number and use"),
        (r"_multid_", "one with an epilogue"),
        (r"preshuffle|flatmm", "a GEMM whose B is shuffled beforehand"),
        (r"_vec[0-9]+_[0-9]+_[0-9]+\b", "a GEMM of fixed vector widths, which kernels here do not have"),
    )
)
"""What in a name says it, and what such a kernel is."""


def other_kernel(name: str) -> str:
    """Returns what a kernel of this name is if it is none of those here; "" if the name does not say so."""
    lower = name.lower()
    return next((what for pattern, what in _OTHERS if pattern.search(lower)), "")
