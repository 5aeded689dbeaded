"""Features of a kernel launch of kernels/gpu: the number of workgroups and the work of each.

The grid is that of kernels/gpu/abi.h (device.gpu_abi.plan_launch): merged groups are columns of one GEMM,
bwd_data is one GEMM for each position of the stride, and a two-stage bwd_weight splits its depth to get two
workgroups per compute unit. The workgroups that a unit holds at once come from the binary (code_columns) and
are at least one.

The formulas read intermediates of grouped_conv_own and features of code_columns.
"""

from __future__ import annotations

from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.own_columns import by_direction

LAUNCH_FEATURES = formulas(
    """
is_bwd_data = direction == "bwd_data"  # direction
is_bwd_weight = direction == "bwd_weight"  # direction
launch_channels = groups_at_once * Cg  # input channels of merged groups
launch_outputs = groups_at_once * Kc  # output channels of merged groups
launch_phase_rows = N * ceil_div(Di, stride_d) * ceil_div(Hi, stride_h) * ceil_div(Wi, stride_w)
    # input positions of the batch at one position of the stride
launch_phase_taps = ceil_div(Z, stride_d) * ceil_div(Y, stride_h) * ceil_div(X, stride_w)
    # filter taps that meet one position of the stride, at most
launch_depth_forward = launch_channels * taps  # channels x taps of merged groups
launch_depth_data = launch_outputs * launch_phase_taps  # of bwd_data
launch_rows = by_direction(rows_out, launch_phase_rows, launch_outputs)  # rows of a GEMM
launch_columns = by_direction(launch_outputs, launch_channels, launch_depth_forward)  # columns of a GEMM
launch_depth = by_direction(launch_depth_forward, launch_depth_data, rows_out)  # depth of a GEMM
launch_phases = where(direction == "bwd_data", stride_d * stride_h * stride_w, 1.0)
    # positions of the stride, each a GEMM of its own
launch_tiles_m = where(
    split_image == 1, N * ceil_div(floor(launch_rows / N), tile_m), ceil_div(launch_rows, tile_m)
)  # tiles along the rows
launch_tiles_n = ceil_div(launch_columns, tile_n)  # tiles along the columns
launch_splits = where(two_stage == 1, maximum(minimum(
    minimum(ceil_div(rows_out, tile_k), 64.0),
    ceil_div(2 * cus, maximum(launch_tiles_m * launch_tiles_n * ceil_div(G, groups_at_once), 1.0))
), 1.0), 1.0)  # parts that the depth is split into, at most 64
launch_workgroups = (
    launch_tiles_m * launch_tiles_n * ceil_div(G, groups_at_once) * launch_phases * launch_splits
)  # workgroups
launch_steps = ceil_div(ceil_div(launch_depth, tile_k), launch_splits)  # K steps of a workgroup
launch_fill = ratio(flops, launch_workgroups * launch_steps * tile_flops)
    # share of the computed volume that is useful work
launch_fill_rows = launch_rows / (launch_tiles_m * tile_m)
    # share of the tiles along the rows that is useful work
launch_fill_columns = launch_columns / (launch_tiles_n * tile_n)
    # share of the tiles along the columns that is useful work
launch_traffic = launch_workgroups * launch_steps * tile_bytes  # bytes that tiles load
launch_stored = launch_workgroups * tile_m * tile_n * element_bytes  # bytes of all tiles of the result
launch_workspace = where(two_stage == 1, launch_splits * bytes_weight, 0.0)
    # bytes that the second stage reads, in elements' size
launch_loads = launch_workgroups / cus  # workgroups per compute unit
launch_rounds = ceil(launch_loads)  # rounds of one workgroup per compute unit
launch_tail = launch_loads / launch_rounds  # utilization of these rounds
launch_serial = launch_rounds * launch_steps  # serial K steps of a unit
launch_compute = launch_serial * tile_flops  # operations of a unit
launch_unit_traffic = launch_serial * tile_bytes  # bytes that a unit loads
launch_held = maximum(workgroups_at_once, 1.0)  # workgroups held at once
launch_held_rounds = ceil(launch_loads / launch_held)  # rounds of as many workgroups as are held
launch_held_tail = launch_loads / (launch_held * launch_held_rounds)  # utilization of those rounds
launch_held_serial = launch_held_rounds * launch_steps  # serial K steps
launch_latency = launch_held_rounds * (launch_steps + 4)
    # serial K steps, plus 4 to begin and end each tile (estimated)
launch_resident = minimum(launch_held, launch_rounds)  # workgroups that a unit has
launch_resident_waves = launch_resident * waves  # waves that a unit has
launch_c_by = minimum(power_of_two(Cg), 64)  # power of two that divides C/G, to 64
launch_k_by = minimum(power_of_two(Kc), 64)  # power of two that divides K/G, to 64
launch_channels_by = minimum(power_of_two(launch_channels), 64)  # the same of merged input channels
launch_outputs_by = minimum(power_of_two(launch_outputs), 64)  # the same of merged output channels
launch_load_c = minimum(vector_a, launch_c_by)  # elements of a load along C
launch_load_k = minimum(vector_a, launch_k_by)  # elements of a load along K
launch_store_c = minimum(vector_c, launch_c_by)  # elements of a store along C
launch_store_k = minimum(vector_c, launch_k_by)  # elements of a store along K
launch_c_fits = launch_c_by >= vector_a  # whole vectors of the first operand in C/G
launch_k_fits = launch_k_by >= vector_c  # whole vectors of the result in K/G
launch_steps_a_tap = Cg / tile_k  # K steps for each filter tap, of forward
launch_row_channels = X * Cg  # channels of a row of the filter
launch_outputs_per_lane = ratio(tile_m * tile_n, waves * hw_wavefront_size)
    # accumulators of a lane, elements
""",
    by_direction=by_direction,
)
"""The last columns of the third version of our own schema of convolutions."""
