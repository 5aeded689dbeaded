"""Columns shared by our own schemas of all operations: rounds over the compute units, tiles, workgroups.

The formulas read `tiles`, `tiles_k` and `element_bytes`, which each operation defines.
"""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Array, Feature, FeatureTable
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.grouped_conv_published import PIPELINE_CODES

PIPELINES = {**PIPELINE_CODES, "comp_async": 7, "basic_async_v1": 8}
"""Codes of pipelines: the published ones and those that they lack."""


def by_direction(t: FeatureTable, forward: Array, bwd_data: Array, bwd_weight: Array) -> Array:
    """Returns one of three columns, by the direction of the convolution."""
    data, weight = (t.word_is("direction", word.__eq__) == 1 for word in ("bwd_data", "bwd_weight"))
    return np.where(data, bwd_data, np.where(weight, bwd_weight, forward))


def fills(m: str, n: str, fill_k: str) -> tuple[Feature, ...]:
    """Returns the useful shares of tiles along the axes of a product, m and n by their names, and of all."""
    return formulas(f"""
fill_m = {m} / (tiles_m * tile_m)  # share of the tiles along M that is useful work
fill_n = {n} / (tiles_n * tile_n)  # share of the tiles along N that is useful work
fill_k = {fill_k}  # share of the steps along K that is useful work
fill = fill_m * fill_n * fill_k  # share of the computed volume that is useful work
""")


def cost(arrays: str) -> tuple[Feature, ...]:
    """Returns logarithms of a problem's cost. arrays: what the operation calls its operands and result."""
    return formulas(f"""
log2_flops = log2_of(flops)  # log2 of the floating-point operations
log2_intensity = log2(flops / bytes_total)  # log2 of operations per byte
log2_l2_share = log2(ratio(bytes_total, 1024 * hw_l2_cache_kb * maximum(hw_num_xcd, 1)) + {2**-20})
    # log2 of the {arrays}' bytes over all L2 caches
""")


(INTERWAVE,) = formulas('interwave = scheduler == "interwave"  # scheduler')

ROUNDS: tuple[Feature, ...] = formulas("""
cus = maximum(hw_num_cus, 1.0)  # compute units, at least 1
cu_loads = tiles / cus  # tiles per compute unit
rounds = ceil(cu_loads)  # rounds of tiles
steps = rounds * tiles_k  # serial K steps
tile_flops = 2 * tile_m * tile_n * tile_k  # operations of one K step
tile_bytes = (tile_m + tile_n) * tile_k * element_bytes  # bytes of one K step
traffic_bytes = tiles * tiles_k * tile_bytes  # operand bytes that tiles load
""")
"""Intermediates: the distribution of the tiles, and the cost of one K step."""

LOADS: tuple[Feature, ...] = formulas("""
log2_tiles_k = log2_of(tiles_k)  # log2 of the K steps of a tile
log2_tiles = log2_of(tiles)  # log2 of the output tiles
log2_cu_loads = log2(cu_loads)  # log2 of the tiles per compute unit
log2_rounds = log2_of(rounds)  # log2 of the rounds of tiles
tail = cu_loads / rounds  # utilization of the rounds, 0 to 1
log2_steps = log2_of(steps)  # log2 of the serial K steps
log2_compute = log2(steps * tile_flops)  # log2 of a compute unit's operations
log2_traffic = log2(traffic_bytes)  # log2 of the operand bytes that tiles load
log2_cu_traffic = log2(steps * tile_bytes)  # log2 of the bytes one compute unit loads
""")
"""Of `ROUNDS`."""

TILE: tuple[Feature, ...] = formulas("""
tile_m  # rows of a workgroup's tile
tile_n  # columns of a workgroup's tile
tile_k  # depth of a workgroup's tile
""")

WARP_TILE: tuple[Feature, ...] = formulas("""
warp_tile_m  # rows of a wave's instruction tile
warp_tile_n  # columns of a wave's instruction tile
warp_tile_k  # depth of a wave's instruction tile
""")

WORKGROUP: tuple[Feature, ...] = formulas("""
waves_count = waves  # waves of a workgroup
outputs_per_wave = tile_m * tile_n / waves  # accumulators of a wave, elements
tile_intensity = tile_flops / tile_bytes  # operations per byte of a tile's step
lds_kib = lds_bytes / 1024  # LDS of a workgroup, KiB
""")
