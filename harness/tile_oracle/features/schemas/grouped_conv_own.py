"""Our own feature schema of grouped convolution: what determines a kernel's time.

A convolution is one GEMM per group, with M rows (covered by tile_m), Ng columns (tile_n) and depth Kg
(tile_k); which dimensions these are depends on the direction. A workgroup computes one output tile. The tiles
are distributed over the compute units, one tile on each at a time: `cu_loads` tiles per unit, in `rounds`
rounds, the last of which may be partial. Sizes that span orders of magnitude are log2.
"""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, FeatureSchema
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas import pool_columns
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
    fills,
)

PROBLEM_INPUTS = formulas(
    """
element_bytes = dtype  # bytes of one element
Cg = C / G  # input channels of a group
Kc = K / G  # output channels of a group
taps = Z * Y * X  # filter taps
Do = (Di + 2 * pad_d - ((Z - 1) * dilation_d + 1)) // stride_d + 1  # output planes
Ho = (Hi + 2 * pad_h - ((Y - 1) * dilation_h + 1)) // stride_h + 1  # output rows
Wo = (Wi + 2 * pad_w - ((X - 1) * dilation_w + 1)) // stride_w + 1  # output columns
rows_in = N * Di * Hi * Wi  # input positions of the batch
rows_out = N * Do * Ho * Wo  # output positions of the batch
depth_forward = Cg * taps  # channels x taps that one output sums over
depth_data = Kc * taps  # channels x taps that one input gradient sums over
M = by_direction(rows_out, rows_in, Kc)  # rows of a group's GEMM
Ng = by_direction(Kc, Cg, depth_forward)  # columns of a group's GEMM
Kg = by_direction(depth_forward, depth_data, rows_out)  # depth of a group's GEMM
bytes_input = rows_in * C * element_bytes  # bytes of the image tensor
bytes_output = rows_out * K * element_bytes  # bytes of the output tensor
bytes_weight = K * Cg * taps * element_bytes  # bytes of the filter
bytes_written = by_direction(bytes_output, bytes_input, bytes_weight)  # bytes of the result
bytes_total = bytes_input + bytes_output + bytes_weight  # bytes, each tensor moved once
flops = 2 * rows_out * K * Cg * taps  # floating-point operations
""",
    by_direction=by_direction,
)
"""Intermediates of a problem alone."""

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    *formulas("""
groups_at_once = minimum(num_groups_to_merge, G)  # groups of one workgroup
tiles_m = ceil_div(M, tile_m)  # tiles along M
tiles_n = ceil_div(Ng, tile_n)  # tiles along N of a group
tiles_k = ceil_div(Kg, tile_k)  # steps along K
tiles = tiles_m * tiles_n * ceil_div(G, groups_at_once)  # output tiles
"""),
    *ROUNDS,
    *formulas("""
waves = wave_m * wave_n * wave_k  # waves of a workgroup
lds_bytes = tile_bytes * (1 + double_smem_buffer)  # LDS of a workgroup, bytes
"""),
)

_FEATURES = (
    *formulas("""
log2_M = log2_of(M)  # log2 of the GEMM's rows
log2_Ng = log2_of(Ng)  # log2 of the GEMM's columns in a group
log2_Kg = log2_of(Kg)  # log2 of the GEMM's depth in a group
log2_G = log2_of(G)  # log2 of the groups
log2_tiles_m = log2_of(tiles_m)  # log2 of the tiles along M
log2_tiles_n = log2_of(tiles_n)  # log2 of the tiles along N of a group
"""),
    *LOADS,
    *fills("M", "Ng", "Kg / (tiles_k * tile_k)"),
    *formulas("""
log2_bytes = log2_of(bytes_total)  # log2 of the bytes of all three tensors
log2_bytes_written = log2_of(bytes_written)  # log2 of the bytes of the result
log2_bytes_weight = log2_of(bytes_weight)  # log2 of the bytes of the filter
"""),
    *cost("tensors"),
    *formulas("""
is_1x1 = taps == 1  # one filter tap
is_pointwise = (taps == 1) & (stride_h * stride_w == 1)  # a plain GEMM
taps_count = taps  # filter taps
stride_area = stride_d * stride_h * stride_w  # input positions per step
dilation_max = maximum(dilation_h, dilation_w)  # largest dilation
padded_share = (pad_h > 0) * (pad_h / Hi) + (pad_w > 0) * (pad_w / Wi)  # padding relative to the image
log2_row = log2_of(Wo)  # log2 of the output columns
vector_c_channels = minimum(power_of_two(Cg), 16)  # vector width that C/G allows, to 16
vector_k_channels = minimum(power_of_two(Kc), 16)  # vector width that K/G allows, to 16
vectors_fit = (vector_c_channels >= minimum(vector_b, 16)) & (vector_k_channels >= minimum(vector_c, 16))
    # the kernel's vector widths divide the channels
is_depthwise = (Cg == 1) & (G > 1)  # one input channel per group
"""),
    *TILE,
    *formulas("""
wave_m  # waves along M
wave_n  # waves along N
"""),
    *WARP_TILE,
    *formulas("""
vector_a  # elements of a load of the first operand
vector_b  # elements of a load of the second operand
vector_c  # elements of a store of the result
"""),
    *WORKGROUP,
    *formulas("""
lds_share = ratio(lds_bytes, hw_lds_capacity)  # share of the LDS
pipeline  # pipeline code
"""),
    INTERWAVE,
    *formulas("""
double_smem_buffer  # two LDS buffers
split_image  # the image is split
num_groups_to_merge  # groups of one workgroup
explicit_gemm  # runs as a plain GEMM
two_stage  # a second kernel converts the result
"""),
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
# Terms of a kernel's time, which a physical model adds up with coefficients >= 0. They follow a workgroup: it
# starts, makes `tiles_k` steps and writes its tile. A compute unit runs `rounds` of them, several at a time
# if its registers and LDS allow it (then time grows only with every second, third or fourth round). Tiles
# that share an operand load it again.
_TERMS = formulas("""
start = 1  # launch, first loads, last store
first_steps = tiles_k  # K steps of one tile
further_rounds = rounds - 1  # starts of further rounds
further_steps = (ceil(cu_loads / 1) - 1) * tiles_k  # K steps of further rounds, one workgroup at a time
further_steps_2 = (ceil(cu_loads / 2) - 1) * tiles_k  # the same, two workgroups at a time
further_steps_3 = (ceil(cu_loads / 3) - 1) * tiles_k  # the same, three
further_steps_4 = (ceil(cu_loads / 4) - 1) * tiles_k  # the same, four
crowd_steps = maximum(cu_loads - 1, 0) * tiles_k  # steps beyond one tile per unit
shared_steps = cu_loads * tiles_k  # steps that share caches and memory
written_mb = bytes_written / 1e6  # result, MB
reload_gb = G * tiles_m * Ng * Kg * element_bytes / 1e9  # second operand over all tiles
partial_step = (mod(Kg, tile_k) > 0) * rounds  # last K steps that are not full
""")

GROUPED_CONV_TERMS = FeatureSchema(
    "grouped_conv_terms_1",
    GROUPED_CONV_OWN.op,
    _TERMS,
    (*GROUPED_CONV_OWN.intermediates, *GROUPED_CONV_OWN.features),
    GROUPED_CONV_OWN.words,
    GROUPED_CONV_OWN.categorical,
)
"""Terms of a grouped convolution's time."""


def is_step_term(name: str) -> bool:
    """Returns whether a term counts K steps. The time of one step depends on the tile's volume."""
    return name.endswith("steps") or "_steps_" in name


_OF_POOL = (
    *PROBLEM_INPUTS,
    *pool_columns.TILES,
    *pool_columns.tiles_of_product("Ng", "Kg"),
    *formulas("""
tiles = tiles_m * tiles_n * G * parts  # workgroups' tiles
steps = ceil_div(tiles, cus) * tiles_k  # serial K steps
"""),
)

GROUPED_CONV_POOL = pool_columns.pool_schema(
    "grouped_conv_pool_1",
    "grouped_conv",
    (
        *PROBLEM_COLUMNS,
        *pool_columns.CONFIGURED,
        *pool_columns.ROUNDS,
        *pool_columns.PRODUCT_STEPS,
        pool_columns.CU_TRAFFIC,
        *pool_columns.fills_of_product("Ng", "Kg"),
        *pool_columns.BINARY,
    ),
    _OF_POOL,
    {"dtype": ELEMENT_BYTES},
)
"""For every direction, 2D and 3D, data type and source."""

# ---- Features of a kernel launch of kernels/gpu: the number of workgroups and the work of each ---
# The grid is that of kernels/gpu/abi.h (device.gpu_abi.plan_launch): merged groups are columns of one GEMM,
# bwd_data is one GEMM for each position of the stride, and a two-stage bwd_weight splits its depth to get two
# workgroups per compute unit. The workgroups that a unit holds at once come from the binary (code_columns)
# and are at least one.
#
# The formulas read intermediates of grouped_conv_own and features of code_columns.

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
