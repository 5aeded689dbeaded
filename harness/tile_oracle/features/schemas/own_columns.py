"""Columns shared by our own schemas of all operations: rounds over the compute units, tiles, workgroups.

The formulas read `tiles`, `tiles_k` and `element_bytes`, which each operation defines.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import (
    Array,
    Feature,
    FeatureTable,
    Formula,
    given,
    log2,
    log2_of,
    ratio,
)
from tile_oracle.features.schemas.grouped_conv_published import PIPELINE_CODES

PIPELINES = {**PIPELINE_CODES, "comp_async": 7, "basic_async_v1": 8}
"""Codes of pipelines: the published ones and those that they lack."""


def log2_column(name: str) -> Callable[[FeatureTable], Array]:
    """Returns the formula log2(max(column, 1))."""
    return lambda t: log2_of(t[name])


def fill_column(size: str, tiles: str, tile: str) -> Callable[[FeatureTable], Array]:
    """Returns the formula of the share of the tiles along an axis that is useful work."""
    return lambda t: t[size] / (t[tiles] * t[tile])


def by_direction(forward: str, bwd_data: str, bwd_weight: str) -> Callable[[FeatureTable], Array]:
    """Returns the formula of one of three columns, by the direction of the convolution."""

    def formula(t: FeatureTable) -> Array:
        data = t.word_is("direction", lambda word: word == "bwd_data") == 1
        weight = t.word_is("direction", lambda word: word == "bwd_weight") == 1
        return np.where(data, t[bwd_data], np.where(weight, t[bwd_weight], t[forward]))

    return formula


def divided_by(name: str, most: float) -> Callable[[FeatureTable], Array]:
    """Returns the formula of the largest power of two, up to `most`, that divides a count."""

    def formula(t: FeatureTable) -> Array:
        count = t[name].astype(np.int64)
        widest: Array = np.minimum(count & -count, most)
        return widest

    return formula


def fills(m: str, n: str, fill_k: Formula) -> tuple[Feature, ...]:
    """Returns the useful shares of tiles along the axes of a product, m and n by their names, and of all."""
    return (
        Feature(
            "fill_m", fill_column(m, "tiles_m", "tile_m"), "share of the tiles along M that is useful work"
        ),
        Feature(
            "fill_n", fill_column(n, "tiles_n", "tile_n"), "share of the tiles along N that is useful work"
        ),
        Feature("fill_k", fill_k, "share of the steps along K that is useful work"),
        Feature(
            "fill",
            lambda t: t.fill_m * t.fill_n * t.fill_k,
            "share of the computed volume that is useful work",
        ),
    )


def cost(arrays: str) -> tuple[Feature, ...]:
    """Returns logarithms of a problem's cost. arrays: what the operation calls its operands and result."""
    return (
        Feature("log2_flops", log2_column("flops"), "log2 of the floating-point operations"),
        Feature("log2_intensity", lambda t: log2(t.flops / t.bytes_total), "log2 of operations per byte"),
        Feature(
            "log2_l2_share",
            lambda t: log2(
                ratio(t.bytes_total, 1024 * t.hw_l2_cache_kb * np.maximum(t.hw_num_xcd, 1)) + 2**-20
            ),
            f"log2 of the {arrays}' bytes over all L2 caches",
        ),
    )


INTERWAVE = Feature(
    "interwave", lambda t: t.word_is("scheduler", lambda word: word == "interwave"), "scheduler"
)

ROUNDS: tuple[Feature, ...] = (
    Feature("cus", lambda t: np.maximum(t.hw_num_cus, 1.0), "compute units, at least 1"),
    Feature("cu_loads", lambda t: t.tiles / t.cus, "tiles per compute unit"),
    Feature("rounds", lambda t: np.ceil(t.cu_loads), "rounds of tiles"),
    Feature("steps", lambda t: t.rounds * t.tiles_k, "serial K steps"),
    Feature("tile_flops", lambda t: 2 * t.tile_m * t.tile_n * t.tile_k, "operations of one K step"),
    Feature(
        "tile_bytes", lambda t: (t.tile_m + t.tile_n) * t.tile_k * t.element_bytes, "bytes of one K step"
    ),
    Feature("traffic_bytes", lambda t: t.tiles * t.tiles_k * t.tile_bytes, "operand bytes that tiles load"),
)
"""Intermediates: the distribution of the tiles, and the cost of one K step."""

LOADS: tuple[Feature, ...] = (
    Feature("log2_tiles_k", log2_column("tiles_k"), "log2 of the K steps of a tile"),
    Feature("log2_tiles", log2_column("tiles"), "log2 of the output tiles"),
    Feature("log2_cu_loads", lambda t: log2(t.cu_loads), "log2 of the tiles per compute unit"),
    Feature("log2_rounds", log2_column("rounds"), "log2 of the rounds of tiles"),
    Feature("tail", lambda t: t.cu_loads / t.rounds, "utilization of the rounds, 0 to 1"),
    Feature("log2_steps", log2_column("steps"), "log2 of the serial K steps"),
    Feature("log2_compute", lambda t: log2(t.steps * t.tile_flops), "log2 of a compute unit's operations"),
    Feature("log2_traffic", lambda t: log2(t.traffic_bytes), "log2 of the operand bytes that tiles load"),
    Feature(
        "log2_cu_traffic",
        lambda t: log2(t.steps * t.tile_bytes),
        "log2 of the bytes one compute unit loads",
    ),
)
"""Of `ROUNDS`."""

TILE: tuple[Feature, ...] = (
    given("tile_m", "rows of a workgroup's tile"),
    given("tile_n", "columns of a workgroup's tile"),
    given("tile_k", "depth of a workgroup's tile"),
)

WARP_TILE: tuple[Feature, ...] = (
    given("warp_tile_m", "rows of a wave's instruction tile"),
    given("warp_tile_n", "columns of a wave's instruction tile"),
    given("warp_tile_k", "depth of a wave's instruction tile"),
)

WORKGROUP: tuple[Feature, ...] = (
    Feature("waves_count", lambda t: t.waves, "waves of a workgroup"),
    Feature("outputs_per_wave", lambda t: t.tile_m * t.tile_n / t.waves, "accumulators of a wave, elements"),
    Feature("tile_intensity", lambda t: t.tile_flops / t.tile_bytes, "operations per byte of a tile's step"),
    Feature("lds_kib", lambda t: t.lds_bytes / 1024, "LDS of a workgroup, KiB"),
)
