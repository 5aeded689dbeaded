"""The published feature schemas of grouped convolution for the kernels of CK DSL: 101 and 113 columns.

Unlike the older published schemas, these read a kernel's tile correctly: m x n x k, with the threads of a
workgroup as the block size. Models of CK DSL list the columns that they use (`feature_names`): the 101 for
gfx942 and gfx90a, about 70 of the 113 for gfx950.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tile_oracle.features.feature_table import Array, Feature, FeatureSchema, FeatureTable, Formula
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.grouped_conv_published import GROUPED_CONV_97


def _stated(field: str, formula: str, otherwise: float) -> Formula:
    """Returns the formula or, where a kernel's field is not known, what CK DSL's trainer gives all kernels of
    its sweeps, which state tile and pipeline alone (gen_conv_sweep_data.py)."""
    (known,) = formulas(f"known = {formula}  # where it is stated")

    def column(t: FeatureTable) -> Array:
        if field not in t.inputs:
            return np.full(t.length, otherwise)
        if not isinstance(t.inputs, pd.DataFrame):
            return known.formula(t)
        unstated = t.inputs[field].isna().to_numpy()
        return (
            np.full(t.length, otherwise)
            if unstated.all()
            else np.where(unstated, otherwise, known.formula(t))
        )

    return column


_OF_TILES = formulas(
    """
block_size = threads()  # threads; 256 for a kernel whose waves are not stated
is_intrawave = intrawave()  # one wave ahead
has_dsb = two_buffers()  # two LDS buffers
has_si = split()  # the image is split
gemm_m_per_block = tile_m  # m: rows of the tile
gemm_n_per_block = tile_n  # n: columns of the tile
tile_volume = gemm_m_per_block * gemm_n_per_block * gemm_k_per_block  # m n k
lds_usage_estimate = (gemm_m_per_block + gemm_n_per_block) * gemm_k_per_block * bytes_each
    # bytes of both operand tiles
num_tiles_k = ceil_div(gemm_k_output, gemm_k_per_block)  # ceil(K/k)
tile_eff_k = tile_fill(gemm_k_output, gemm_k_per_block)  # fill of the last tile along K
ratio_gemm_k_to_tile_k = gemm_k_output / gemm_k_per_block  # K/k
problem_smaller_than_tile_k = gemm_k_output < gemm_k_per_block  # K < k
""",
    threads=_stated("wave_m", "wave_m * wave_n * wave_k * hw_wavefront_size", 256.0),
    intrawave=_stated("scheduler", 'scheduler == "intrawave"', 1.0),
    two_buffers=_stated("double_smem_buffer", "double_smem_buffer", 0.0),
    split=_stated("split_image", "split_image", 0.0),
)
"""Columns that have another meaning in the older schemas."""

_NUM_CUS, _K_PER_C, _TILE_K = formulas("""
num_cus = maximum(hw_num_cus, 1.0)  # compute units; 1 where there are none
K_per_C = K / C  # output channels per input channel
gemm_k_per_block = tile_k  # k: depth of the tile
""")
_SHAPE = formulas("""
log_gemm_m_n_ratio = log(maximum(gemm_m_output, 1.0) / maximum(gemm_n_output, 1.0))  # ln(M/N)
log_total_output_tiles = log(maximum(total_output_tiles, 1.0))  # ln(output tiles)
""")
_OF_GFX950 = formulas("""
log_num_tiles_m = log(maximum(num_tiles_m, 1.0))  # ln(tiles along M)
is_mem_x_log_num_tiles_m = is_mem * log_num_tiles_m  # the same, pipeline mem only
log_gemm_m_raw = log(maximum(gemm_m_output, 1.0))  # ln(M)
gemm_m_lt_num_cus = gemm_m_output < num_cus  # M < compute units
log_gemm_m_over_num_cus = log(maximum(gemm_m_output, 1.0) / num_cus)  # ln(M / compute units)
is_mem_x_log_gemm_m_raw = is_mem * log_gemm_m_raw  # ln(M), pipeline mem only
log_cu_fill = log(maximum(ratio(total_output_tiles, num_cus), 1e-6))  # ln(output tiles / compute units)
k_tiles_over_mn_tiles = num_tiles_k / maximum(total_output_tiles, 1.0)  # tiles along K per output tile
waves_per_max_occ = ratio(total_output_tiles, num_cus * hw_max_waves_per_cu)
    # output tiles / waves that the device holds
wave_quant_efficiency = total_output_tiles / (ceil_div(total_output_tiles, num_cus) * num_cus)
    # fill of the last round of output tiles over the compute units
log_k_per_active_cu = log(maximum(num_tiles_k / minimum(total_output_tiles, num_cus), 1e-6))
    # ln(tiles along K / compute units at work)
is_subwave = total_output_tiles < num_cus  # tiles < compute units
""")


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
