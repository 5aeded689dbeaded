"""The published feature schemas of GEMM (gemm_universal): 55, 72 and 78 columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import ELEMENT_BYTES, Array, Feature, FeatureSchema, FeatureTable
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.grouped_conv_published import HARDWARE_FEATURES, PIPELINE_CODES
from tile_oracle.features.schemas.own_columns import TILE, WARP_TILE

WORD_CODES: dict[str, dict[str, float]] = {
    "dtype": ELEMENT_BYTES,
    "layout": {"rcr": 0, "rrr": 1, "crr": 2, "ccr": 3},
    "pipeline": PIPELINE_CODES,
    "scheduler": {"intrawave": 0, "interwave": 1},
    "epilogue": {"default": 0, "cshuffle": 1},
}
"""Published codes of the text columns."""


_PROBLEM = formulas("""
M  # rows of A and C
N  # columns of B and C
K  # depth of the product
split_k  # parts that the depth is split into
log2_@@ = log2_of(@@)  # log2 of @@
log2_MNK = log2_of(M * N * K)  # log2 of M N K
arithmetic_intensity = 2 * M * N * K / ((M * K + K * N + M * N) * dtype)
    # floating-point operations per byte, each matrix moved once
aspect_ratio_mn = M / N  # M/N
aspect_ratio_mk = M / K  # M/K
aspect_ratio_nk = N / K  # N/K
layout  # published layout code: rcr 0, rrr 1, crr 2, ccr 3
""")

_KERNEL = (
    *TILE,
    *formulas("warp_@  # waves along @@"),
    *WARP_TILE,
    *formulas("""
pipeline  # published pipeline code
scheduler  # intrawave 0, interwave 1
epilogue  # default 0, cshuffle 1
pad_@  # a partial tile along @@ is handled
persistent  # persistent workgroups, which process several tiles
num_warps = warp_m * warp_n * warp_k  # waves of a workgroup
tile_volume = tile_m * tile_n * tile_k  # tile_m tile_n tile_k
tile_mn = tile_m * tile_n  # tile_m tile_n
lds_usage_estimate = (tile_m * tile_k + tile_n * tile_k) * dtype  # bytes of both operand tiles
lds_usage_ratio = lds_usage_estimate / where(pipeline == "compv4", 32768.0, hw_lds_for_ratio)
    # share of the LDS that the pipeline can use
"""),
)

_TILES = formulas("""
num_tiles_@ = ceil_div(@@, tile_@)  # ceil(@@/tile_@)
total_output_tiles = num_tiles_m * num_tiles_n  # output tiles
tile_eff_@ = tile_fill(@@, tile_@)  # fill of the last tile along @@
overall_tile_efficiency = tile_eff_m * tile_eff_n * tile_eff_k  # product of the three
cu_utilization = ratio(total_output_tiles, hw_num_cus)  # output tiles per CU
""")

_PADDING = formulas("""
ratio_@@_to_tile_@ = @@ / tile_@  # @@/tile_@
problem_smaller_than_tile_@ = @@ < tile_@  # @@ < tile_@
any_dim_too_small = maximum(
    maximum(problem_smaller_than_tile_m, problem_smaller_than_tile_n), problem_smaller_than_tile_k
)  # one of the three
needs_padding_@ = mod(@@, tile_@) != 0  # @@ is not a multiple of tile_@
has_padding_when_needed_@ = needs_padding_@ * pad_@  # needed along @@ and present
missing_required_padding_@ = needs_padding_@ * (1 - pad_@)  # needed along @@ but missing
missing_any_required_padding = maximum(
    maximum(missing_required_padding_m, missing_required_padding_n), missing_required_padding_k
)  # one of the three
""")

GEMM_72 = FeatureSchema(
    "gemm_universal_72",
    "gemm_universal",
    (*_PROBLEM, *_KERNEL, *_TILES, *_PADDING, *HARDWARE_FEATURES),
    words=WORD_CODES,
    categorical=("layout", "pipeline", "scheduler", "epilogue"),
)
"""The 72 columns, with the ratios and the padding columns."""

_WIDEST_BYTES = 16.0


def _widest(t: FeatureTable, operand: str) -> Array:
    """Elements of the widest vector of an operand; a product of fp8 matrices is stored as fp16."""
    return _WIDEST_BYTES / (t.dtype if operand != "c" else np.maximum(t.dtype, 2.0))


def _by_layout(t: FeatureTable, operand: str, along_rows: Array, along_columns: Array) -> Array:
    """Returns a value where the operand is row-major, another where it is column-major."""
    place = "abc".index(operand)
    return np.where(t.word_is("layout", lambda word: word[place] == "r") == 1, along_rows, along_columns)


def _legal(t: FeatureTable, operand: str) -> Array:
    """Returns the widest vector that divides the problem's contiguous extent."""
    along = {"a": (t.K, t.M), "b": (t.N, t.K), "c": (t.N, t.M)}[operand]
    return _most(t, operand, _by_layout(t, operand, *along))


def _native(t: FeatureTable, operand: str) -> Array:
    """Returns the vector that a kernel of CK Tile moves an operand with, by its tile, waves and epilogue.

    Steps are of 16 and 8 bytes, of 4 only for types of 4 bytes, else single elements (CK Tile's
    GetGlobalVectorLoadSize). The default epilogue stores row-major results one by one; of others nothing is
    published, and the feature is not finite.
    """
    if operand == "c":
        stores = t.number_of("epilogue", lambda word: _STORES.get(word, np.nan))
        return np.maximum(stores * _widest(t, "c"), 1.0)
    rows = t.tile_m if operand == "a" else t.tile_n
    sides = (t.tile_k, rows) if operand == "a" else (rows, t.tile_k)
    each = np.floor(rows * t.tile_k / (t.num_warps * t.hw_wavefront_size))
    fits = _most(t, operand, _by_layout(t, operand, *sides), each)
    return np.where(fits * t.dtype >= np.where(t.dtype >= 4, 4.0, 8.0), fits, 1.0)


def _most(t: FeatureTable, operand: str, *extents: Array) -> Array:
    """Returns the widest vector of at most 16 bytes, a power of 2, that divides all extents."""
    found = np.ones(t.length)
    for times in (16.0, 8.0, 4.0, 2.0, 1.0):
        width = np.maximum(_widest(t, operand) / times, 1.0)
        rest = sum((np.mod(extent, width) for extent in extents), start=np.zeros(t.length))
        found = np.where(rest == 0, width, found)
    return found


def _fraction(operand: str) -> Callable[[FeatureTable], Array]:
    return lambda t: _native(t, operand) / _legal(t, operand)


_STORES = {"cshuffle": 1.0, "default": 0.0}
"""Epilogue -> the share of the widest vector that it stores a row-major result with; 0: one element."""
_VECTORS = (
    *(
        Feature(f"vec_{one}", lambda t: np.zeros(t.length), f"fixed width of {one.upper()}: 0, the tile's")
        for one in "abc"
    ),
    *(
        Feature(f"vec_frac_{one}", _fraction(one), f"width of {one.upper()} over the problem's widest")
        for one in "abc"
    ),
)

GEMM_78 = GEMM_72.extended("gemm_universal_78", _VECTORS)
"""With the vector widths, which are those of the tile: kernels of fixed widths are none here."""
