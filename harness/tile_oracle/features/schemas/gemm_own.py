"""Our own feature schema of GEMM: rounds and tails over the compute units, fill, bytes, intensity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import (
    ELEMENT_BYTES,
    Array,
    Feature,
    FeatureSchema,
    FeatureTable,
    ceil_div,
    flag,
    given,
)
from tile_oracle.features.schemas.gemm_published import WORD_CODES
from tile_oracle.features.schemas.own_columns import (
    INTERWAVE,
    LOADS,
    PIPELINES,
    ROUNDS,
    TILE,
    WARP_TILE,
    WORKGROUP,
    cost,
    fills,
    log2_column,
)

_log2 = log2_column
_VECTOR_BYTES = 16


def _vector_bytes(extent: str) -> Callable[[FeatureTable], Array]:
    """Bytes, at most 16, of the widest load that divides every row of a matrix with this contiguous
    extent."""

    def formula(t: FeatureTable) -> Array:
        count = t[extent].astype(np.int64)
        widest: Array = np.minimum((count & -count) * t.dtype, _VECTOR_BYTES)
        return widest

    return formula


def _layout_letter(place: int, letter: str) -> Callable[[FeatureTable], Array]:
    return lambda t: t.word_is("layout", lambda word: word[place : place + 1] == letter)


PROBLEM_INPUTS = (
    Feature("element_bytes", lambda t: t.dtype, "bytes of one element of A and B"),
    Feature(
        "result_bytes",
        lambda t: np.where(t.dtype == 1, 2.0, t.dtype),
        "bytes of one element of C (fp8: fp16)",
    ),
    Feature("flops", lambda t: 2 * t.M * t.N * t.K, "floating-point operations"),
    Feature("bytes_a", lambda t: t.M * t.K * t.element_bytes, "bytes of A"),
    Feature("bytes_b", lambda t: t.K * t.N * t.element_bytes, "bytes of B"),
    Feature("bytes_written", lambda t: t.M * t.N * t.result_bytes, "bytes of C"),
    Feature(
        "bytes_total", lambda t: t.bytes_a + t.bytes_b + t.bytes_written, "bytes, each tensor moved once"
    ),
    Feature("a_by_columns", _layout_letter(0, "c"), "A is column-major"),
    Feature("b_by_columns", _layout_letter(1, "c"), "B is column-major"),
    Feature("row_a", lambda t: np.where(t.a_by_columns == 1, t.M, t.K), "contiguous elements of A"),
    Feature("row_b", lambda t: np.where(t.b_by_columns == 1, t.K, t.N), "contiguous elements of B"),
)
"""Intermediates that depend on the problem alone."""

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    Feature("tiles_m", lambda t: ceil_div(t.M, t.tile_m), "tiles along M"),
    Feature("tiles_n", lambda t: ceil_div(t.N, t.tile_n), "tiles along N"),
    Feature("tiles_k", lambda t: ceil_div(t.K, t.tile_k * t.split_k), "steps along K of one part"),
    Feature("tiles", lambda t: t.tiles_m * t.tiles_n * t.split_k, "workgroups' tiles"),
    *ROUNDS,
    Feature("waves", lambda t: t.warp_m * t.warp_n * t.warp_k, "waves of a workgroup"),
    Feature("shuffled", lambda t: t.word_is("pipeline", lambda w: w.startswith("preshuffle")), "B shuffled"),
    Feature(
        "two_buffers",
        lambda t: t.word_is(
            "pipeline", lambda w: w in ("compv4", "comp_async") or w.startswith("preshuffle")
        ),
        "the pipeline works in two LDS buffers",
    ),
    Feature(
        "lds_bytes",
        lambda t: (t.tile_m + t.tile_n * (1 - t.shuffled)) * t.tile_k * t.element_bytes * (1 + t.two_buffers),
        "LDS of a workgroup, bytes",
    ),
)

_FEATURES = (
    Feature("log2_M", _log2("M"), "log2 of the rows"),
    Feature("log2_N", _log2("N"), "log2 of the columns"),
    Feature("log2_K", _log2("K"), "log2 of the depth"),
    given("split_k", "parts that the depth is split into"),
    Feature("log2_tiles_m", _log2("tiles_m"), "log2 of the tiles along M"),
    Feature("log2_tiles_n", _log2("tiles_n"), "log2 of the tiles along N"),
    *LOADS,
    *fills("M", "N", lambda t: t.K / (t.tiles_k * t.tile_k * t.split_k)),
    Feature("log2_bytes", _log2("bytes_total"), "log2 of the bytes of all three matrices"),
    Feature("log2_bytes_b", _log2("bytes_b"), "log2 of the bytes of B"),
    Feature("log2_bytes_written", _log2("bytes_written"), "log2 of the bytes of C"),
    *cost("matrices"),
    Feature("a_columns", lambda t: t.a_by_columns, "A is column-major"),
    Feature("b_columns", lambda t: t.b_by_columns, "B is column-major"),
    Feature("vector_a_bytes", _vector_bytes("row_a"), "bytes of the widest load of A, to 16"),
    Feature("vector_b_bytes", _vector_bytes("row_b"), "bytes of the widest load of B, to 16"),
    Feature("vector_c_bytes", _vector_bytes("N"), "bytes of the widest store of C, to 16"),
    Feature("padded", lambda t: flag(t.fill < 1), "a tile is partial"),
    *TILE,
    given("warp_m", "waves along M"),
    given("warp_n", "waves along N"),
    *WARP_TILE,
    *WORKGROUP,
    given("pipeline", "pipeline code"),
    INTERWAVE,
    given("epilogue", "default 0, cshuffle 1"),
    given("pad_m", "a partial tile along M is handled"),
    given("pad_n", "a partial tile along N is handled"),
    given("pad_k", "a partial tile along K is handled"),
    given("persistent", "persistent workgroups, which process several tiles"),
)

_OF_PROBLEM = (
    *("log2_M", "log2_N", "log2_K", "split_k", "log2_bytes", "log2_bytes_b", "log2_bytes_written"),
    *("log2_flops", "log2_intensity", "log2_l2_share", "a_columns", "b_columns"),
    *("vector_a_bytes", "vector_b_bytes", "vector_c_bytes"),
)
PROBLEM_COLUMNS = tuple(one for one in _FEATURES if one.name in _OF_PROBLEM)
"""The features that depend on the problem alone."""

GEMM_OWN = FeatureSchema(
    "gemm_own_1",
    "gemm_universal",
    _FEATURES,
    _INTERMEDIATES,
    {**WORD_CODES, "dtype": ELEMENT_BYTES, "pipeline": PIPELINES},
)
"""For every layout and data type; split-K and shuffled operands are counted as executed."""
