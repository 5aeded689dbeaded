"""Features of a kernel launch of kernels/gpu: the number of workgroups and the work of each.

The grid is that of kernels/gpu/abi.h (device.gpu_abi.plan_launch): merged groups are columns of one GEMM,
bwd_data is one GEMM for each position of the stride, and a two-stage bwd_weight splits its depth to get two
workgroups per compute unit. The workgroups that a unit holds at once come from the binary (code_columns) and
are at least one.

The formulas read intermediates of grouped_conv_own and features of code_columns.
"""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Array, Feature, FeatureTable, ceil_div, flag, ratio
from tile_oracle.features.schemas.own_columns import by_direction, divided_by, fill_column

_MOST_SPLITS = 64.0
_WIDEST = 64.0
_ENDS = 4.0
"""Time to begin and end a tile, in K steps (estimated)."""


def _tiles_m(t: FeatureTable) -> Array:
    """Tiles along the rows. With split_image every image begins a new tile."""
    images = t.N * ceil_div(np.floor(t.launch_rows / t.N), t.tile_m)
    return np.where(t.split_image == 1, images, ceil_div(t.launch_rows, t.tile_m))


def _tiles(t: FeatureTable) -> Array:
    """Tiles of all groups, at one position of the stride."""
    return t.launch_tiles_m * t.launch_tiles_n * ceil_div(t.G, t.groups_at_once)


def _splits(t: FeatureTable) -> Array:
    wanted = ceil_div(2 * t.cus, np.maximum(_tiles(t), 1.0))
    splits = np.minimum(np.minimum(ceil_div(t.rows_out, t.tile_k), _MOST_SPLITS), wanted)
    return np.where(t.two_stage == 1, np.maximum(splits, 1.0), 1.0)


LAUNCH_FEATURES: tuple[Feature, ...] = (
    Feature("is_bwd_data", lambda t: t.word_is("direction", lambda word: word == "bwd_data"), "direction"),
    Feature(
        "is_bwd_weight", lambda t: t.word_is("direction", lambda word: word == "bwd_weight"), "direction"
    ),
    Feature("launch_channels", lambda t: t.groups_at_once * t.Cg, "input channels of merged groups"),
    Feature("launch_outputs", lambda t: t.groups_at_once * t.Kc, "output channels of merged groups"),
    Feature(
        "launch_phase_rows",
        lambda t: t.N * ceil_div(t.Di, t.stride_d) * ceil_div(t.Hi, t.stride_h) * ceil_div(t.Wi, t.stride_w),
        "input positions of the batch at one position of the stride",
    ),
    Feature(
        "launch_phase_taps",
        lambda t: ceil_div(t.Z, t.stride_d) * ceil_div(t.Y, t.stride_h) * ceil_div(t.X, t.stride_w),
        "filter taps that meet one position of the stride, at most",
    ),
    Feature("launch_depth_forward", lambda t: t.launch_channels * t.taps, "channels x taps of merged groups"),
    Feature("launch_depth_data", lambda t: t.launch_outputs * t.launch_phase_taps, "of bwd_data"),
    Feature("launch_rows", by_direction("rows_out", "launch_phase_rows", "launch_outputs"), "rows of a GEMM"),
    Feature(
        "launch_columns",
        by_direction("launch_outputs", "launch_channels", "launch_depth_forward"),
        "columns of a GEMM",
    ),
    Feature(
        "launch_depth",
        by_direction("launch_depth_forward", "launch_depth_data", "rows_out"),
        "depth of a GEMM",
    ),
    Feature(
        "launch_phases",
        lambda t: np.where(
            t.word_is("direction", lambda word: word == "bwd_data") == 1,
            t.stride_d * t.stride_h * t.stride_w,
            1.0,
        ),
        "positions of the stride, each a GEMM of its own",
    ),
    Feature("launch_tiles_m", _tiles_m, "tiles along the rows"),
    Feature("launch_tiles_n", lambda t: ceil_div(t.launch_columns, t.tile_n), "tiles along the columns"),
    Feature("launch_splits", _splits, "parts that the depth is split into"),
    Feature("launch_workgroups", lambda t: _tiles(t) * t.launch_phases * t.launch_splits, "workgroups"),
    Feature(
        "launch_steps",
        lambda t: ceil_div(ceil_div(t.launch_depth, t.tile_k), t.launch_splits),
        "K steps of a workgroup",
    ),
    Feature(
        "launch_fill",
        lambda t: ratio(t.flops, t.launch_workgroups * t.launch_steps * t.tile_flops),
        "share of the computed volume that is useful work",
    ),
    Feature(
        "launch_fill_rows",
        fill_column("launch_rows", "launch_tiles_m", "tile_m"),
        "share of the tiles along the rows that is useful work",
    ),
    Feature(
        "launch_fill_columns",
        fill_column("launch_columns", "launch_tiles_n", "tile_n"),
        "share of the tiles along the columns that is useful work",
    ),
    Feature(
        "launch_traffic",
        lambda t: t.launch_workgroups * t.launch_steps * t.tile_bytes,
        "bytes that tiles load",
    ),
    Feature(
        "launch_stored",
        lambda t: t.launch_workgroups * t.tile_m * t.tile_n * t.element_bytes,
        "bytes of all tiles of the result",
    ),
    Feature(
        "launch_workspace",
        lambda t: np.where(t.two_stage == 1, t.launch_splits * t.bytes_weight, 0.0),
        "bytes that the second stage reads, in elements' size",
    ),
    Feature("launch_loads", lambda t: t.launch_workgroups / t.cus, "workgroups per compute unit"),
    Feature("launch_rounds", lambda t: np.ceil(t.launch_loads), "rounds of one workgroup per compute unit"),
    Feature("launch_tail", lambda t: t.launch_loads / t.launch_rounds, "utilization of these rounds"),
    Feature("launch_serial", lambda t: t.launch_rounds * t.launch_steps, "serial K steps of a unit"),
    Feature("launch_compute", lambda t: t.launch_serial * t.tile_flops, "operations of a unit"),
    Feature("launch_unit_traffic", lambda t: t.launch_serial * t.tile_bytes, "bytes that a unit loads"),
    Feature("launch_held", lambda t: np.maximum(t.workgroups_at_once, 1.0), "workgroups held at once"),
    Feature(
        "launch_held_rounds",
        lambda t: np.ceil(t.launch_loads / t.launch_held),
        "rounds of as many workgroups as are held",
    ),
    Feature(
        "launch_held_tail",
        lambda t: t.launch_loads / (t.launch_held * t.launch_held_rounds),
        "utilization of those rounds",
    ),
    Feature("launch_held_serial", lambda t: t.launch_held_rounds * t.launch_steps, "serial K steps"),
    Feature(
        "launch_latency",
        lambda t: t.launch_held_rounds * (t.launch_steps + _ENDS),
        "serial K steps, plus the time to begin and end each tile",
    ),
    Feature(
        "launch_resident", lambda t: np.minimum(t.launch_held, t.launch_rounds), "workgroups that a unit has"
    ),
    Feature("launch_resident_waves", lambda t: t.launch_resident * t.waves, "waves that a unit has"),
    Feature("launch_c_by", divided_by("Cg", _WIDEST), "power of two that divides C/G, to 64"),
    Feature("launch_k_by", divided_by("Kc", _WIDEST), "power of two that divides K/G, to 64"),
    Feature(
        "launch_channels_by", divided_by("launch_channels", _WIDEST), "the same of merged input channels"
    ),
    Feature("launch_outputs_by", divided_by("launch_outputs", _WIDEST), "the same of merged output channels"),
    Feature("launch_load_c", lambda t: np.minimum(t.vector_a, t.launch_c_by), "elements of a load along C"),
    Feature("launch_load_k", lambda t: np.minimum(t.vector_a, t.launch_k_by), "elements of a load along K"),
    Feature("launch_store_c", lambda t: np.minimum(t.vector_c, t.launch_c_by), "elements of a store along C"),
    Feature("launch_store_k", lambda t: np.minimum(t.vector_c, t.launch_k_by), "elements of a store along K"),
    Feature(
        "launch_c_fits",
        lambda t: flag(t.launch_c_by >= t.vector_a),
        "whole vectors of the first operand in C/G",
    ),
    Feature(
        "launch_k_fits", lambda t: flag(t.launch_k_by >= t.vector_c), "whole vectors of the result in K/G"
    ),
    Feature(
        "launch_steps_a_tap",
        lambda t: t.Cg / t.tile_k,
        "K steps for each filter tap, of forward",
    ),
    Feature("launch_row_channels", lambda t: t.X * t.Cg, "channels of a row of the filter"),
    Feature(
        "launch_outputs_per_lane",
        lambda t: ratio(t.tile_m * t.tile_n, t.waves * t.hw_wavefront_size),
        "accumulators of a lane, elements",
    ),
)
"""The last columns of the third version of our own schema of convolutions."""
