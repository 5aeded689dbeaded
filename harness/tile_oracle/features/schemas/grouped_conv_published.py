"""The published feature schemas of grouped convolution: 97, 91 and 83 columns.

Models trained elsewhere depend on exactly these values, so two of their errors are kept on purpose. A
kernel's name has tile_m x tile_n x tile_k, but these schemas read the three numbers as block size x m x n;
and they describe the GEMM of all groups together, with N = K.
"""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import (
    ELEMENT_BYTES,
    Feature,
    FeatureSchema,
    ceil_div,
    flag,
    given,
    log2_of,
    ratio,
    tile_fill,
)
from tile_oracle.features.schemas.hardware_columns import HARDWARE_FEATURES

PIPELINE_CODES: dict[str, float] = {
    "compv3": 0, "compv4": 1, "compv5": 2, "mem": 3, "preshufflev2": 4, "basic_v1": 5, "compv6": 6,
}  # fmt: skip
"""Published codes; a pipeline that is not listed counts as 0."""

_INTERMEDIATES = (
    Feature("bytes_each", lambda t: t.dtype, "bytes of one element"),
    Feature("Cg", lambda t: t.C / t.G, "input channels of a group"),
    Feature("Kg", lambda t: t.K / t.G, "output channels of a group"),
    Feature("in_volume", lambda t: t.Di * t.Hi * t.Wi, "input positions of an image"),
    Feature("out_volume", lambda t: t.Do * t.Ho * t.Wo, "output positions of an image"),
)

_FEATURES = (
    given("N", "images"),
    given("C", "input channels, all groups"),
    given("K", "output channels, all groups"),
    given("G", "groups"),
    given("Hi", "input rows"),
    given("Wi", "input columns"),
    given("Y", "filter rows"),
    given("X", "filter columns"),
    given("stride_h", "step along rows"),
    given("stride_w", "step along columns"),
    given("pad_h", "rows of padding on each side"),
    given("pad_w", "columns of padding on each side"),
    Feature(
        "Ho",
        lambda t: (t.Hi + 2 * t.pad_h - ((t.Y - 1) * t.dilation_h + 1)) // t.stride_h + 1,
        "output rows",
    ),
    Feature(
        "Wo",
        lambda t: (t.Wi + 2 * t.pad_w - ((t.X - 1) * t.dilation_w + 1)) // t.stride_w + 1,
        "output columns",
    ),
    Feature("log2_N", lambda t: log2_of(t.N), "log2 of N"),
    Feature("log2_C", lambda t: log2_of(t.C), "log2 of C"),
    Feature("log2_K", lambda t: log2_of(t.K), "log2 of K"),
    Feature("log2_G", lambda t: log2_of(t.G), "log2 of G"),
    Feature("log2_Hi", lambda t: log2_of(t.Hi), "log2 of Hi"),
    Feature("log2_Wi", lambda t: log2_of(t.Wi), "log2 of Wi"),
    Feature("log2_spatial", lambda t: log2_of(t.in_volume), "log2 of the input positions"),
    Feature("log2_filter", lambda t: log2_of(t.filter_area), "log2 of the filter taps"),
    Feature("log2_output", lambda t: log2_of(t.out_volume), "log2 of the output positions"),
    Feature(
        "arithmetic_intensity",
        lambda t: (
            2
            * t.N
            * t.K
            * t.out_volume
            * t.Cg
            * t.filter_area
            / (
                t.bytes_each
                * (t.N * t.C * t.in_volume + t.K * t.Cg * t.filter_area + t.N * t.K * t.out_volume)
            )
        ),
        "floating-point operations per byte, each tensor moved once",
    ),
    Feature("filter_area", lambda t: t.Z * t.Y * t.X, "filter taps"),
    Feature("is_1x1_conv", lambda t: flag((t.Y == 1) & (t.X == 1) & (t.Z == 1)), "one tap"),
    Feature(
        "is_3x3_conv",
        lambda t: flag((t.Y == 3) & (t.X == 3) & ((t.Z == 3) | (t.is_3d == 0))),
        "three taps along every axis",
    ),
    Feature("channels_per_group", lambda t: t.Cg, "C/G"),
    Feature("aspect_ratio_hw", lambda t: t.Hi / t.Wi, "Hi/Wi"),
    Feature("aspect_ratio_filter", lambda t: t.Y / t.X, "Y/X"),
    Feature("is_3d", lambda t: flag((t.Di > 1) | (t.Z > 1) | (t.pad_d > 0)), "the problem has depth"),
    given("Di", "input planes"),
    given("Z", "filter planes"),
    Feature(
        "Do",
        lambda t: np.where(
            t.is_3d == 0, 1.0, (t.Di + 2 * t.pad_d - ((t.Z - 1) * t.dilation_d + 1)) // t.stride_d + 1
        ),
        "output planes",
    ),
    given("stride_d", "step along planes"),
    given("pad_d", "planes of padding on each side"),
    given("dilation_h", "distance of filter rows"),
    given("dilation_w", "distance of filter columns"),
    Feature("log2_channels_per_group", lambda t: log2_of(t.Cg), "log2 of C/G"),
    Feature("log2_output_channels_per_group", lambda t: log2_of(t.Kg), "log2 of K/G"),
    Feature("is_depthwise", lambda t: flag((t.G == t.C) & (t.G == t.K)), "one channel per group"),
    Feature("group_density", lambda t: t.G / t.C, "G/C"),
    Feature("is_small_group", lambda t: flag((t.Cg < 16) | (t.Kg < 16)), "a group has under 16 channels"),
    Feature("channels_product_per_group", lambda t: t.Cg * t.Kg, "(C/G)(K/G)"),
    Feature("batch_group_product", lambda t: t.N * t.G, "N G"),
    Feature("is_small_batch_grouped", lambda t: flag((t.N < 8) & (t.G > 1)), "few images, several groups"),
    Feature("block_size", lambda t: t.tile_m, "first number of the tile"),
    Feature("gemm_m_per_block", lambda t: t.tile_n, "second number of the tile"),
    Feature("gemm_n_per_block", lambda t: t.tile_k, "third number of the tile"),
    given("pipeline", "published pipeline code"),
    Feature("num_warps", lambda t: t.block_size / 4, "block size / 4"),
    Feature("tile_volume", lambda t: t.tile_mn * t.block_size, "m n b"),
    Feature("tile_mn", lambda t: t.gemm_m_per_block * t.gemm_n_per_block, "m n"),
    Feature(
        "lds_usage_estimate",
        lambda t: (t.gemm_m_per_block + t.gemm_n_per_block) * t.block_size * t.bytes_each,
        "bytes of both operand tiles",
    ),
    Feature(
        "lds_usage_ratio",
        lambda t: t.lds_usage_estimate / np.where(t.is_compv4 == 1, 32768.0, 65536.0),
        "share of the LDS that the pipeline can use",
    ),
    Feature("block_tile_ratio_m", lambda t: t.gemm_m_per_block / t.block_size, "m/b"),
    Feature("block_tile_ratio_n", lambda t: t.gemm_n_per_block / t.block_size, "n/b"),
    Feature(
        "block_efficiency",
        lambda t: (
            np.minimum(t.gemm_m_per_block, t.gemm_n_per_block)
            / np.maximum(t.gemm_m_per_block, t.gemm_n_per_block)
        ),
        "min(m, n)/max(m, n)",
    ),
    Feature("is_compv3", lambda t: t.word_is("pipeline", lambda w: w == "compv3"), "pipeline compv3"),
    Feature("is_compv4", lambda t: t.word_is("pipeline", lambda w: w == "compv4"), "pipeline compv4"),
    Feature("is_compv5", lambda t: t.word_is("pipeline", lambda w: w == "compv5"), "pipeline compv5"),
    Feature("is_intrawave", lambda t: t.word_is("scheduler", lambda w: w == "intrawave"), "one wave ahead"),
    Feature("has_dsb", lambda t: t.double_smem_buffer, "two LDS buffers"),
    Feature("has_si", lambda t: t.split_image, "the image is split"),
    Feature(
        "is_basic", lambda t: t.word_is("pipeline", lambda w: w.startswith("basic_v")), "pipeline basic_vN"
    ),
    Feature("is_compv6", lambda t: t.word_is("pipeline", lambda w: w == "compv6"), "pipeline compv6"),
    Feature("is_mem", lambda t: t.word_is("pipeline", lambda w: w == "mem"), "pipeline mem"),
    Feature("gemm_m_output", lambda t: t.N * t.out_volume, "M: output positions of the batch"),
    Feature("gemm_n_output", lambda t: t.K, "N: output channels, all groups together"),
    Feature("gemm_k_output", lambda t: np.trunc(t.Cg * t.filter_area), "K: (C/G) taps"),
    Feature("num_tiles_m", lambda t: ceil_div(t.gemm_m_output, t.gemm_m_per_block), "ceil(M/m)"),
    Feature("num_tiles_n", lambda t: ceil_div(t.gemm_n_output, t.gemm_n_per_block), "ceil(N/n)"),
    Feature("num_tiles_k", lambda t: ceil_div(t.gemm_k_output, t.block_size), "ceil(K/b)"),
    Feature("total_output_tiles", lambda t: t.num_tiles_m * t.num_tiles_n, "output tiles"),
    Feature(
        "tile_eff_m",
        lambda t: tile_fill(t.gemm_m_output, t.gemm_m_per_block),
        "fill of the last tile along M",
    ),
    Feature(
        "tile_eff_n",
        lambda t: tile_fill(t.gemm_n_output, t.gemm_n_per_block),
        "fill of the last tile along N",
    ),
    Feature(
        "tile_eff_k", lambda t: tile_fill(t.gemm_k_output, t.block_size), "fill of the last tile along K"
    ),
    Feature(
        "overall_tile_efficiency",
        lambda t: t.tile_eff_m * t.tile_eff_n * t.tile_eff_k,
        "product of the three",
    ),
    Feature("cu_utilization", lambda t: ratio(t.total_output_tiles, t.hw_num_cus), "output tiles per CU"),
    Feature("ratio_gemm_m_to_tile_m", lambda t: t.gemm_m_output / t.gemm_m_per_block, "M/m"),
    Feature("ratio_gemm_n_to_tile_n", lambda t: t.gemm_n_output / t.gemm_n_per_block, "N/n"),
    Feature("ratio_gemm_k_to_tile_k", lambda t: t.gemm_k_output / t.block_size, "K/b"),
    Feature("problem_smaller_than_tile_m", lambda t: flag(t.gemm_m_output < t.gemm_m_per_block), "M < m"),
    Feature("problem_smaller_than_tile_n", lambda t: flag(t.gemm_n_output < t.gemm_n_per_block), "N < n"),
    Feature("problem_smaller_than_tile_k", lambda t: flag(t.gemm_k_output < t.block_size), "K < b"),
    *HARDWARE_FEATURES,
)

_THREE_D = ("is_3d", "Di", "Z", "Do", "stride_d", "pad_d", "dilation_h", "dilation_w")
_SUFFIX = ("is_intrawave", "has_dsb", "has_si", "is_basic", "is_compv6", "is_mem")

GROUPED_CONV_97 = FeatureSchema(
    "grouped_conv_97",
    "grouped_conv",
    _FEATURES,
    _INTERMEDIATES,
    {"dtype": ELEMENT_BYTES, "pipeline": PIPELINE_CODES},
    ("pipeline",),
)
"""2D, 3D, dilation, and the flags that a kernel's name says after its pipeline."""

GROUPED_CONV_91 = GROUPED_CONV_97.subset(
    "grouped_conv_91", [name for name in GROUPED_CONV_97.names if name not in _SUFFIX]
)
"""2D, 3D and dilation."""

GROUPED_CONV_83 = GROUPED_CONV_97.subset(
    "grouped_conv_83", [name for name in GROUPED_CONV_91.names if name not in _THREE_D]
)
"""2D alone."""
