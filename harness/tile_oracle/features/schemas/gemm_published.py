"""The published feature schemas of GEMM (gemm_universal): 55, 72 and 78 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tile_oracle.features.feature_table import (
    ELEMENT_BYTES,
    Array,
    Feature,
    FeatureSchema,
    FeatureTable,
    Formula,
    ceil_div,
    flag,
    given,
    log2_of,
    ratio,
    tile_fill,
)
from tile_oracle.features.hardware import LDS_FOR_RATIO
from tile_oracle.features.schemas.grouped_conv_published import PIPELINE_CODES
from tile_oracle.features.schemas.hardware_columns import HARDWARE_FEATURES
from tile_oracle.features.schemas.own_columns import TILE, WARP_TILE, log2_column

WORD_CODES: dict[str, dict[str, float]] = {
    "dtype": ELEMENT_BYTES,
    "layout": {"rcr": 0, "rrr": 1, "crr": 2, "ccr": 3},
    "pipeline": PIPELINE_CODES,
    "scheduler": {"intrawave": 0, "interwave": 1},
    "epilogue": {"default": 0, "cshuffle": 1},
}
"""Published codes of the text columns."""


def _each(name: str, meaning: str, formula: Callable[[FeatureTable, str], Array]) -> Iterator[Feature]:
    """Yields a column of each axis, whose letter stands for @; of @@ the capital."""
    for axis in "mnk":
        words = (text.replace("@@", axis.upper()).replace("@", axis) for text in (name, meaning))
        yield Feature(next(words), partial(_of_axis, formula, axis), next(words))


def _of_axis(formula: Callable[[FeatureTable, str], Array], axis: str, t: FeatureTable) -> Array:
    return formula(t, axis)


def _extents(t: FeatureTable, axis: str) -> tuple[Array, Array]:
    """Returns the problem's extent and the tile's."""
    return t[axis.upper()], t[f"tile_{axis}"]


def _any_of(name: str) -> Formula:
    return lambda t: np.maximum(np.maximum(t[f"{name}_m"], t[f"{name}_n"]), t[f"{name}_k"])


_PROBLEM = (
    given("M", "rows of A and C"),
    given("N", "columns of B and C"),
    given("K", "depth of the product"),
    given("split_k", "parts that the depth is split into"),
    *(Feature(f"log2_{name}", log2_column(name), f"log2 of {name}") for name in "MNK"),
    Feature("log2_MNK", lambda t: log2_of(t.M * t.N * t.K), "log2 of M N K"),
    Feature(
        "arithmetic_intensity",
        lambda t: 2 * t.M * t.N * t.K / ((t.M * t.K + t.K * t.N + t.M * t.N) * t.dtype),
        "floating-point operations per byte, each matrix moved once",
    ),
    Feature("aspect_ratio_mn", lambda t: t.M / t.N, "M/N"),
    Feature("aspect_ratio_mk", lambda t: t.M / t.K, "M/K"),
    Feature("aspect_ratio_nk", lambda t: t.N / t.K, "N/K"),
    given("layout", "published layout code: rcr 0, rrr 1, crr 2, ccr 3"),
)

_KERNEL = (
    *TILE,
    given("warp_m", "waves along M"),
    given("warp_n", "waves along N"),
    given("warp_k", "waves along K"),
    *WARP_TILE,
    given("pipeline", "published pipeline code"),
    given("scheduler", "intrawave 0, interwave 1"),
    given("epilogue", "default 0, cshuffle 1"),
    given("pad_m", "a partial tile along M is handled"),
    given("pad_n", "a partial tile along N is handled"),
    given("pad_k", "a partial tile along K is handled"),
    given("persistent", "persistent workgroups, which process several tiles"),
    Feature("num_warps", lambda t: t.warp_m * t.warp_n * t.warp_k, "waves of a workgroup"),
    Feature("tile_volume", lambda t: t.tile_m * t.tile_n * t.tile_k, "tile_m tile_n tile_k"),
    Feature("tile_mn", lambda t: t.tile_m * t.tile_n, "tile_m tile_n"),
    Feature(
        "lds_usage_estimate",
        lambda t: (t.tile_m * t.tile_k + t.tile_n * t.tile_k) * t.dtype,
        "bytes of both operand tiles",
    ),
    Feature(
        "lds_usage_ratio",
        lambda t: (
            t.lds_usage_estimate
            / np.where(t.word_is("pipeline", lambda word: word == "compv4") == 1, 32768.0, t[LDS_FOR_RATIO])
        ),
        "share of the LDS that the pipeline can use",
    ),
)

_TILES = (
    *_each("num_tiles_@", "ceil(@@/tile_@)", lambda t, axis: ceil_div(*_extents(t, axis))),
    Feature("total_output_tiles", lambda t: t.num_tiles_m * t.num_tiles_n, "output tiles"),
    *_each("tile_eff_@", "fill of the last tile along @@", lambda t, axis: tile_fill(*_extents(t, axis))),
    Feature(
        "overall_tile_efficiency",
        lambda t: t.tile_eff_m * t.tile_eff_n * t.tile_eff_k,
        "product of the three",
    ),
    Feature("cu_utilization", lambda t: ratio(t.total_output_tiles, t.hw_num_cus), "output tiles per CU"),
)

_PADDING = (
    *_each("ratio_@@_to_tile_@", "@@/tile_@", lambda t, axis: t[axis.upper()] / t[f"tile_{axis}"]),
    *_each(
        "problem_smaller_than_tile_@",
        "@@ < tile_@",
        lambda t, axis: flag(t[axis.upper()] < t[f"tile_{axis}"]),
    ),
    Feature("any_dim_too_small", _any_of("problem_smaller_than_tile"), "one of the three"),
    *_each(
        "needs_padding_@",
        "@@ is not a multiple of tile_@",
        lambda t, axis: flag(np.mod(*_extents(t, axis)) != 0),
    ),
    *_each(
        "has_padding_when_needed_@",
        "needed along @@ and present",
        lambda t, axis: t[f"needs_padding_{axis}"] * t[f"pad_{axis}"],
    ),
    *_each(
        "missing_required_padding_@",
        "needed along @@ but missing",
        lambda t, axis: t[f"needs_padding_{axis}"] * (1 - t[f"pad_{axis}"]),
    ),
    Feature("missing_any_required_padding", _any_of("missing_required_padding"), "one of the three"),
)

GEMM_72 = FeatureSchema(
    "gemm_universal_72",
    "gemm_universal",
    (*_PROBLEM, *_KERNEL, *_TILES, *_PADDING, *HARDWARE_FEATURES),
    words=WORD_CODES,
    categorical=("layout", "pipeline", "scheduler", "epilogue"),
)
"""The 72 columns, with the ratios and the padding columns."""

GEMM_55 = GEMM_72.subset(
    "gemm_universal_55",
    [feature.name for feature in (*_PROBLEM, *_KERNEL, *_TILES, *HARDWARE_FEATURES)],
)
"""Without them."""


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
