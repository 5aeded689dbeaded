"""Our own feature schema of grouped convolution: what determines a kernel's time.

A convolution is one GEMM per group, with M rows (covered by tile_m), Ng columns (tile_n) and depth Kg
(tile_k); which dimensions these are depends on the direction. A workgroup computes one output tile. The tiles
are distributed over the compute units, one tile on each at a time: `cu_loads` tiles per unit, in `rounds`
rounds, the last of which may be partial. Sizes that span orders of magnitude are log2.
"""

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
    ratio,
)
from tile_oracle.features.schemas.own_columns import (
    INTERWAVE,
    LOADS,
    PIPELINES,
    ROUNDS,
    TILE,
    WARP_TILE,
    WORKGROUP,
    by_direction,
    cost,
    divided_by,
    fill_column,
    fills,
    log2_column,
)

_log2 = log2_column
_VECTOR_MAX = 16.0


def _output_extent(i: str, f: str, axis: str) -> Callable[[FeatureTable], Array]:
    return lambda t: (
        (t[i] + 2 * t[f"pad_{axis}"] - ((t[f] - 1) * t[f"dilation_{axis}"] + 1)) // t[f"stride_{axis}"] + 1
    )


PROBLEM_INPUTS = (
    Feature("element_bytes", lambda t: t.dtype, "bytes of one element"),
    Feature("Cg", lambda t: t.C / t.G, "input channels of a group"),
    Feature("Kc", lambda t: t.K / t.G, "output channels of a group"),
    Feature("taps", lambda t: t.Z * t.Y * t.X, "filter taps"),
    Feature("Do", _output_extent("Di", "Z", "d"), "output planes"),
    Feature("Ho", _output_extent("Hi", "Y", "h"), "output rows"),
    Feature("Wo", _output_extent("Wi", "X", "w"), "output columns"),
    Feature("rows_in", lambda t: t.N * t.Di * t.Hi * t.Wi, "input positions of the batch"),
    Feature("rows_out", lambda t: t.N * t.Do * t.Ho * t.Wo, "output positions of the batch"),
    Feature("depth_forward", lambda t: t.Cg * t.taps, "channels x taps that one output sums over"),
    Feature("depth_data", lambda t: t.Kc * t.taps, "channels x taps that one input gradient sums over"),
    Feature("M", by_direction("rows_out", "rows_in", "Kc"), "rows of a group's GEMM"),
    Feature("Ng", by_direction("Kc", "Cg", "depth_forward"), "columns of a group's GEMM"),
    Feature("Kg", by_direction("depth_forward", "depth_data", "rows_out"), "depth of a group's GEMM"),
    Feature("bytes_input", lambda t: t.rows_in * t.C * t.element_bytes, "bytes of the image tensor"),
    Feature("bytes_output", lambda t: t.rows_out * t.K * t.element_bytes, "bytes of the output tensor"),
    Feature("bytes_weight", lambda t: t.K * t.Cg * t.taps * t.element_bytes, "bytes of the filter"),
    Feature(
        "bytes_written", by_direction("bytes_output", "bytes_input", "bytes_weight"), "bytes of the result"
    ),
    Feature(
        "bytes_total",
        lambda t: t.bytes_input + t.bytes_output + t.bytes_weight,
        "bytes, each tensor moved once",
    ),
    Feature("flops", lambda t: 2 * t.rows_out * t.K * t.Cg * t.taps, "floating-point operations"),
)
"""Intermediates of a problem alone."""

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    Feature("groups_at_once", lambda t: np.minimum(t.num_groups_to_merge, t.G), "groups of one workgroup"),
    Feature("tiles_m", lambda t: ceil_div(t.M, t.tile_m), "tiles along M"),
    Feature("tiles_n", lambda t: ceil_div(t.Ng, t.tile_n), "tiles along N of a group"),
    Feature("tiles_k", lambda t: ceil_div(t.Kg, t.tile_k), "steps along K"),
    Feature("tiles", lambda t: t.tiles_m * t.tiles_n * ceil_div(t.G, t.groups_at_once), "output tiles"),
    *ROUNDS,
    Feature("waves", lambda t: t.wave_m * t.wave_n * t.wave_k, "waves of a workgroup"),
    Feature("lds_bytes", lambda t: t.tile_bytes * (1 + t.double_smem_buffer), "LDS of a workgroup, bytes"),
)

_FEATURES = (
    Feature("log2_M", _log2("M"), "log2 of the GEMM's rows"),
    Feature("log2_Ng", _log2("Ng"), "log2 of the GEMM's columns in a group"),
    Feature("log2_Kg", _log2("Kg"), "log2 of the GEMM's depth in a group"),
    Feature("log2_G", _log2("G"), "log2 of the groups"),
    Feature("log2_tiles_m", _log2("tiles_m"), "log2 of the tiles along M"),
    Feature("log2_tiles_n", _log2("tiles_n"), "log2 of the tiles along N of a group"),
    *LOADS,
    *fills("M", "Ng", fill_column("Kg", "tiles_k", "tile_k")),
    Feature("log2_bytes", _log2("bytes_total"), "log2 of the bytes of all three tensors"),
    Feature("log2_bytes_written", _log2("bytes_written"), "log2 of the bytes of the result"),
    Feature("log2_bytes_weight", _log2("bytes_weight"), "log2 of the bytes of the filter"),
    *cost("tensors"),
    Feature("is_1x1", lambda t: flag(t.taps == 1), "one filter tap"),
    Feature("is_pointwise", lambda t: flag((t.taps == 1) & (t.stride_h * t.stride_w == 1)), "a plain GEMM"),
    Feature("taps_count", lambda t: t.taps, "filter taps"),
    Feature("stride_area", lambda t: t.stride_d * t.stride_h * t.stride_w, "input positions per step"),
    Feature("dilation_max", lambda t: np.maximum(t.dilation_h, t.dilation_w), "largest dilation"),
    Feature(
        "padded_share",
        lambda t: (t.pad_h > 0) * (t.pad_h / t.Hi) + (t.pad_w > 0) * (t.pad_w / t.Wi),
        "padding relative to the image",
    ),
    Feature("log2_row", _log2("Wo"), "log2 of the output columns"),
    Feature("vector_c_channels", divided_by("Cg", _VECTOR_MAX), "vector width that C/G allows, to 16"),
    Feature("vector_k_channels", divided_by("Kc", _VECTOR_MAX), "vector width that K/G allows, to 16"),
    Feature(
        "vectors_fit",
        lambda t: flag(
            (t.vector_c_channels >= np.minimum(t.vector_b, _VECTOR_MAX))
            & (t.vector_k_channels >= np.minimum(t.vector_c, _VECTOR_MAX))
        ),
        "the kernel's vector widths divide the channels",
    ),
    Feature("is_depthwise", lambda t: flag((t.Cg == 1) & (t.G > 1)), "one input channel per group"),
    *TILE,
    given("wave_m", "waves along M"),
    given("wave_n", "waves along N"),
    *WARP_TILE,
    given("vector_a", "elements of a load of the first operand"),
    given("vector_b", "elements of a load of the second operand"),
    given("vector_c", "elements of a store of the result"),
    *WORKGROUP,
    Feature("lds_share", lambda t: ratio(t.lds_bytes, t.hw_lds_capacity), "share of the LDS"),
    given("pipeline", "pipeline code"),
    INTERWAVE,
    given("double_smem_buffer", "two LDS buffers"),
    given("split_image", "the image is split"),
    given("num_groups_to_merge", "groups of one workgroup"),
    given("explicit_gemm", "runs as a plain GEMM"),
    given("two_stage", "a second kernel converts the result"),
)

_OF_PROBLEMS = (
    *("log2_M", "log2_Ng", "log2_Kg", "log2_G", "log2_bytes", "log2_bytes_written", "log2_bytes_weight"),
    *("log2_flops", "log2_intensity", "log2_l2_share", "is_1x1", "is_pointwise", "taps_count", "stride_area"),
    *("dilation_max", "padded_share", "log2_row", "vector_c_channels", "vector_k_channels", "is_depthwise"),
)
PROBLEM_COLUMNS = tuple(one for one in _FEATURES if one.name in _OF_PROBLEMS)
"""Columns of a problem alone."""

GROUPED_CONV_OWN = FeatureSchema(
    "grouped_conv_own_1",
    "grouped_conv",
    _FEATURES,
    _INTERMEDIATES,
    {"dtype": ELEMENT_BYTES, "pipeline": PIPELINES},
)
"""For every direction, 2D and 3D, with correct group counts."""
