"""Our feature schemas of GEMM for pools of several sources: native kernels, Triton, libraries.

The second version has the first one's columns, and the pieces of the roofline: trees that see where a
kernel's time goes need not learn it from sizes of tiles. Times are natural logarithms, most of them over the
least time of the problem (`least_us`), so that one split holds for problems of all sizes. Without the peak
rates of the architecture or the data type, columns of times are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tile_oracle.features.feature_table import ELEMENT_BYTES, Array, FeatureTable, Formula, log
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas.configuration import library_cluster, library_stages
from tile_oracle.features.schemas.gemm_own import PROBLEM_COLUMNS, PROBLEM_INPUTS
from tile_oracle.features.schemas.gemm_published import WORD_CODES
from tile_oracle.features.schemas.pool_columns import (
    BINARY,
    CONFIGURED,
    CU_TRAFFIC,
    PRODUCT_STEPS,
    ROUNDS,
    SERIAL_STEPS,
    TILES,
    fills_of_product,
    pool_schema,
    tiles_of_product,
)
from tile_oracle.features.schemas.roofline import ROOFLINE

_OF_POOL = (
    *PROBLEM_INPUTS,
    *TILES,
    *tiles_of_product("N", "K"),
    *formulas("tiles = tiles_m * tiles_n * parts  # workgroups' tiles"),
    *SERIAL_STEPS,
)

GEMM_POOL = pool_schema(
    "gemm_pool_1",
    "gemm_universal",
    (
        *PROBLEM_COLUMNS,
        *CONFIGURED,
        *ROUNDS,
        *PRODUCT_STEPS,
        *formulas("""
log2_compute = log2(steps * tile_m * tile_n * tile_k)  # log2 of a compute unit's multiplications
"""),
        CU_TRAFFIC,
        *fills_of_product("N", "K"),
        *BINARY,
    ),
    _OF_POOL,
    {**WORD_CODES, "dtype": ELEMENT_BYTES},
)
"""For every layout, data type and source; figures of the binaries where they are known."""


def _work(t: FeatureTable) -> FeatureTable:
    return t.once("work", lambda: t.under(ROOFLINE))


def _priced(t: FeatureTable, value: Array) -> Array:
    """Returns a column of the roofline's times; 0 where the peak rates are unknown."""
    work = _work(t)
    return np.where((work.unit_flops > 0) & (work.memory_bytes > 0), value, 0.0)


def _from_library(number: Callable[[str], tuple[float, float]], place: int) -> Formula:
    return lambda t: t.number_of("kernel", lambda name: number(name)[place])


_OF_TABLE: Mapping[str, Callable[..., Any]] = {
    "work": _work,
    "priced": _priced,
    "ln": lambda t, value: log(np.maximum(value, 1e-3)),
    "cluster_rows": _from_library(library_cluster, 0),
    "cluster_columns": _from_library(library_cluster, 1),
    "step_depth": _from_library(library_stages, 0),
    "step_buffers": _from_library(library_stages, 1),
}

# Clusters of 8 and 16 workgroups fit a GPC of 16 to 18 compute units in whole multiples of 8 and 16.
_INTERMEDIATES = formulas(
    """
across = work.tiles / work.tiles_m  # tiles along N
clustered = (ceil(work.tiles_m / cluster_m) * cluster_m) * (ceil(across / cluster_n) * cluster_n) * work.parts
    # tiles with those that fill up the clusters
cluster = cluster_m * cluster_n  # workgroups of a cluster
clustered_units = maximum(
    where(cluster >= 8, floor(work.units / 16) * 16, floor(work.units / cluster) * cluster), 1.0
)  # compute units that whole clusters fill
slots = clustered_units * work.resident  # workgroups that the GPU runs at once
at_once = maximum(minimum(slots / work.parts, work.tiles_m * across), 1.0)  # tiles of one wave of workgroups
wave_rows = maximum(
    minimum(minimum(where(kernel_group > 0, kernel_group, sqrt(at_once)), work.tiles_m), at_once), 1.0
)  # rows of tiles of a wave: `group`, or a square
wave_columns = minimum(ceil(at_once / wave_rows), across)  # columns of tiles of a wave
wave_bytes = (wave_rows * rows_of_a_tile + wave_columns * columns_of_a_tile) * K * (work.bytes_a / (M * K))
    # bytes of the operands that one wave reads, each byte counted once
""",
    **_OF_TABLE,
)

# Split-K writes and reads again 4 bytes of each value of the result.
_FEATURES = formulas(
    """
roofline = priced(ln(work.total_us))  # ln(roofline time in us)
least = priced(ln(work.least_us))  # ln(least time of the problem in us)
roofline_over_least = priced(ln(work.total_us / work.least_us))  # ln(roofline time / least time)
busy_over_least = priced(ln(work.busy_us / work.least_us))  # ln(time of the rounds / least time)
steps_over_least = priced(ln(work.steps * work.step_us / work.least_us))
    # ln(time of the steps of one workgroup / least time)
memory_over_least = priced(ln(work.memory_us / work.least_us))  # ln(time of the memory / least time)
second_over_least = priced(ln((work.second_us + 0.01) / work.least_us))
    # ln(time to add up the parts of split-K or stream-K / least time)
step = priced(ln(work.step_us))  # ln(time of a step in us)
step_compute = priced(ln(work.compute_us / work.step_us))  # ln(matrix instructions' share of a step)
step_lds = priced(ln(work.lds_us / work.step_us))  # ln(share of the traffic to LDS)
step_cached = priced(ln(work.cached_us / work.step_us))  # ln(share of the traffic to the caches)
step_issued = priced(ln(work.issued_us / work.step_us))  # ln(share of issuing loads)
step_waiting = priced(ln(work.waiting_us / work.step_us))  # ln(share of a load's latency)
resident = work.resident  # workgroups that a compute unit runs at once
waves_of_workgroups = ln(work.groups / work.units / work.resident)
    # ln(workgroups / those that the GPU runs at once)
loads = work.loads  # loads for 16 bytes of an operand
spills = work.spills  # slowdown of loads by spilled registers
buffers = ln(work.stages * work.tile_bytes)  # ln(bytes of all buffers of tiles)
loaded_again = ln(work.groups * work.steps * work.useful_bytes / (work.bytes_a + work.bytes_b))
    # ln(bytes that all workgroups load / bytes of both operands)
split_traffic = ln(
    (1.0 + where(work.parts > 1, work.parts * work.values * 8, 0.0))
    / (work.bytes_a + work.bytes_b + work.bytes_c)
)  # ln(bytes of split-K's partial results / bytes of the matrices)
depth_of_a_part = ln(work.depth / work.parts)  # ln(K of one part)
rows_of_a_tile = M / work.tiles_m  # mean useful rows of a tile
columns_of_a_tile = N / across  # mean useful columns of a tile
aligned_@ = minimum(power_of_two(@@), 64)  # power of two that divides @@, to 64
cluster_m = cluster_rows  # rows of workgroups of a cluster
cluster_n = cluster_columns  # columns of workgroups of a cluster
library_depth = step_depth  # depth of a library's step, 0 if unknown
library_buffers = step_buffers  # a library's buffers, 0 if unknown
cluster_fill = work.tiles_m * across * work.parts / clustered
    # share of the clusters' workgroups that have a tile
cluster_tail = clustered / (slots / work.resident) / ceil(clustered / (slots / work.resident))
    # utilization of the rounds, with one workgroup a compute unit
resident_tail = clustered / slots / ceil(clustered / slots)
    # utilization of the rounds, with all that a compute unit runs at once
resident_rounds = ln(ceil(clustered / slots))  # ln(rounds) of these workgroups
l2_traffic = ln(work.tiles_m * across / at_once * wave_bytes / (work.bytes_a + work.bytes_b))
    # ln(bytes that the waves of workgroups read / bytes of both operands)
l2_share = ln(wave_bytes / maximum(work.cache_bytes, 1.0))
    # ln(bytes that one wave reads / bytes of the cache)
""",
    **_OF_TABLE,
)

GEMM_POOL_2 = replace(
    GEMM_POOL.extended("gemm_pool_2", _FEATURES), intermediates=(*GEMM_POOL.intermediates, *_INTERMEDIATES)
)
"""For every layout, data type and source; a model of one data type and GPU reads it like the first one."""
