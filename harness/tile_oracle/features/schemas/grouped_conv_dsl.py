"""The published feature schemas of grouped convolution for the kernels of CK DSL: 101 and 113 columns.

Unlike the older published schemas, these read a kernel's tile correctly: m x n x k, with the threads of a
workgroup as the block size. Models of CK DSL list the columns that they use (`feature_names`): the 101 for
gfx942 and gfx90a, about 70 of the 113 for gfx950.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from tile_oracle.features.feature_table import (
    Array,
    Feature,
    FeatureSchema,
    FeatureTable,
    ceil_div,
    flag,
    log,
    ratio,
    tile_fill,
)
from tile_oracle.features.schemas.grouped_conv_published import GROUPED_CONV_97


def _log(x: Array) -> Array:
    """ln(max(x, 1))."""
    return log(np.maximum(x, 1.0))


def _log_of_share(x: Array) -> Array:
    """ln(max(x, 1e-6))."""
    return log(np.maximum(x, 1e-6))


def _where_stated(t: FeatureTable, field: str, values: Callable[[], Array], otherwise: float) -> Array:
    """Returns a column, or what CK DSL's trainer gives every kernel of its sweeps, which state tile and
    pipeline alone (gen_conv_sweep_data.py)."""
    if field not in t.inputs:
        return np.full(t.length, otherwise)
    if not isinstance(t.inputs, pd.DataFrame):
        return values()
    unstated = t.inputs[field].isna().to_numpy()
    return np.full(t.length, otherwise) if unstated.all() else np.where(unstated, otherwise, values())


def _block_size(t: FeatureTable) -> Array:
    return _where_stated(t, "wave_m", lambda: t.wave_m * t.wave_n * t.wave_k * t.hw_wavefront_size, _THREADS)


def _is_intrawave(t: FeatureTable) -> Array:
    return _where_stated(t, "scheduler", lambda: t.word_is("scheduler", lambda w: w == "intrawave"), 1.0)


_THREADS = 256.0
_OF_TILES = (
    Feature("block_size", _block_size, "threads; 256 for a kernel whose waves are not stated"),
    Feature("is_intrawave", _is_intrawave, "one wave ahead"),
    Feature(
        "has_dsb",
        lambda t: _where_stated(t, "double_smem_buffer", lambda: t.double_smem_buffer, 0.0),
        "two LDS buffers",
    ),
    Feature(
        "has_si", lambda t: _where_stated(t, "split_image", lambda: t.split_image, 0.0), "the image is split"
    ),
    Feature("gemm_m_per_block", lambda t: t.tile_m, "m: rows of the tile"),
    Feature("gemm_n_per_block", lambda t: t.tile_n, "n: columns of the tile"),
    Feature("tile_volume", lambda t: t.gemm_m_per_block * t.gemm_n_per_block * t.gemm_k_per_block, "m n k"),
    Feature(
        "lds_usage_estimate",
        lambda t: (t.gemm_m_per_block + t.gemm_n_per_block) * t.gemm_k_per_block * t.bytes_each,
        "bytes of both operand tiles",
    ),
    Feature("num_tiles_k", lambda t: ceil_div(t.gemm_k_output, t.gemm_k_per_block), "ceil(K/k)"),
    Feature(
        "tile_eff_k",
        lambda t: tile_fill(t.gemm_k_output, t.gemm_k_per_block),
        "fill of the last tile along K",
    ),
    Feature("ratio_gemm_k_to_tile_k", lambda t: t.gemm_k_output / t.gemm_k_per_block, "K/k"),
    Feature("problem_smaller_than_tile_k", lambda t: flag(t.gemm_k_output < t.gemm_k_per_block), "K < k"),
)
"""Columns that have another meaning in the older schemas."""

_NUM_CUS = Feature(
    "num_cus", lambda t: np.maximum(t.hw_num_cus, 1.0), "compute units; 1 where there are none"
)
_K_PER_C = Feature("K_per_C", lambda t: t.K / t.C, "output channels per input channel")
_TILE_K = Feature("gemm_k_per_block", lambda t: t.tile_k, "k: depth of the tile")
_SHAPE = (
    Feature(
        "log_gemm_m_n_ratio",
        lambda t: log(np.maximum(t.gemm_m_output, 1.0) / np.maximum(t.gemm_n_output, 1.0)),
        "ln(M/N)",
    ),
    Feature("log_total_output_tiles", lambda t: _log(t.total_output_tiles), "ln(output tiles)"),
)
_OF_GFX950 = (
    Feature("log_num_tiles_m", lambda t: _log(t.num_tiles_m), "ln(tiles along M)"),
    Feature(
        "is_mem_x_log_num_tiles_m", lambda t: t.is_mem * t.log_num_tiles_m, "the same, pipeline mem only"
    ),
    Feature("log_gemm_m_raw", lambda t: _log(t.gemm_m_output), "ln(M)"),
    Feature("gemm_m_lt_num_cus", lambda t: flag(t.gemm_m_output < t.num_cus), "M < compute units"),
    Feature(
        "log_gemm_m_over_num_cus",
        lambda t: log(np.maximum(t.gemm_m_output, 1.0) / t.num_cus),
        "ln(M / compute units)",
    ),
    Feature("is_mem_x_log_gemm_m_raw", lambda t: t.is_mem * t.log_gemm_m_raw, "ln(M), pipeline mem only"),
    Feature(
        "log_cu_fill",
        lambda t: _log_of_share(ratio(t.total_output_tiles, t.num_cus)),
        "ln(output tiles / compute units)",
    ),
    Feature(
        "k_tiles_over_mn_tiles",
        lambda t: t.num_tiles_k / np.maximum(t.total_output_tiles, 1.0),
        "tiles along K per output tile",
    ),
    Feature(
        "waves_per_max_occ",
        lambda t: ratio(t.total_output_tiles, t.num_cus * t.hw_max_waves_per_cu),
        "output tiles / waves that the device holds",
    ),
    Feature(
        "wave_quant_efficiency",
        lambda t: t.total_output_tiles / (ceil_div(t.total_output_tiles, t.num_cus) * t.num_cus),
        "fill of the last round of output tiles over the compute units",
    ),
    Feature(
        "log_k_per_active_cu",
        lambda t: _log_of_share(t.num_tiles_k / np.minimum(t.total_output_tiles, t.num_cus)),
        "ln(tiles along K / compute units at work)",
    ),
    Feature("is_subwave", lambda t: flag(t.total_output_tiles < t.num_cus), "tiles < compute units"),
)


def _columns() -> tuple[Feature, ...]:
    """Returns the 113 columns in their published order."""
    meant = {feature.name: feature for feature in _OF_TILES}
    after = {
        "is_small_batch_grouped": (_K_PER_C,),
        "gemm_n_per_block": (_TILE_K,),
        "problem_smaller_than_tile_k": (*_SHAPE, *_OF_GFX950),
    }
    found: list[Feature] = []
    for feature in GROUPED_CONV_97.features:
        found += [meant.get(feature.name, feature), *after.get(feature.name, ())]
    return tuple(found)


GROUPED_CONV_113 = FeatureSchema(
    "grouped_conv_113",
    "grouped_conv",
    _columns(),
    (*GROUPED_CONV_97.intermediates, _NUM_CUS),
    GROUPED_CONV_97.words,
    GROUPED_CONV_97.categorical,
)
"""All columns; models of gfx950 use some of them."""

GROUPED_CONV_101 = GROUPED_CONV_113.subset(
    "grouped_conv_101",
    [name for name in GROUPED_CONV_113.names if name not in {feature.name for feature in _OF_GFX950}],
)
"""Without the columns that only models of gfx950 use."""
