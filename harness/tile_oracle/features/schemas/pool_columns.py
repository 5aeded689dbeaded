"""Columns that our schemas of pools of several sources share: configurations from names, and rounds over
the compute units.

A tile whose size is unknown, as of some algorithms of libraries, counts as one of 128 x 128 x 64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import Array, Feature, FeatureTable, ceil_div, log2, log2_of
from tile_oracle.features.schemas.configuration import CONFIGURATION, configuration

_UNKNOWN_TILE = {"tile_m": 128.0, "tile_n": 128.0, "tile_k": 64.0}


def _configured(column: str) -> Callable[[FeatureTable], Array]:
    return lambda t: t.number_of("kernel", lambda name: configuration(name)[column])


CONFIGURED: tuple[Feature, ...] = tuple(
    Feature(f"kernel_{name}", _configured(name), meaning) for name, meaning in CONFIGURATION.items()
)
"""The configuration itself."""


def _tile(column: str) -> Callable[[FeatureTable], Array]:
    def formula(t: FeatureTable) -> Array:
        value = t[f"kernel_{column}"]
        return np.where(value > 0, value, _UNKNOWN_TILE[column])

    return formula


TILES: tuple[Feature, ...] = (
    Feature("tile_m", _tile("tile_m"), "rows of a tile"),
    Feature("tile_n", _tile("tile_n"), "columns of a tile"),
    Feature("tile_k", _tile("tile_k"), "depth of a step"),
    Feature("parts", lambda t: np.maximum(t.kernel_parts, 1.0), "parts of the depth"),
    Feature("cus", lambda t: np.maximum(t.hw_num_cus, 1.0), "compute units, at least 1"),
)
"""Intermediates for formulas with tiles."""

ROUNDS: tuple[Feature, ...] = (
    Feature("log2_tiles", lambda t: log2_of(t.tiles), "log2 of the workgroups' tiles"),
    Feature("log2_cu_loads", lambda t: log2(t.tiles / t.cus), "log2 of the tiles per compute unit"),
    Feature("log2_rounds", lambda t: log2_of(ceil_div(t.tiles, t.cus)), "log2 of the rounds of tiles"),
    Feature(
        "tail", lambda t: t.tiles / t.cus / ceil_div(t.tiles, t.cus), "utilization of the rounds, 0 to 1"
    ),
)
"""The distribution of `tiles` over the compute units."""


def tiles_of_product(n: str, k: str) -> tuple[Feature, ...]:
    """Returns intermediates: the tiles of a product with M rows. n, k: its width and depth."""
    return (
        Feature("tiles_m", lambda t: ceil_div(t.M, t.tile_m), "tiles along M"),
        Feature("tiles_n", lambda t: ceil_div(t[n], t.tile_n), f"tiles along {n}"),
        Feature("tiles_k", lambda t: ceil_div(t[k], t.tile_k * t.parts), f"steps along {k} of one part"),
    )


def fills_of_product(n: str, k: str) -> tuple[Feature, ...]:
    """Returns the useful shares of `tiles_of_product`."""
    return (
        Feature("fill_m", lambda t: t.M / (t.tiles_m * t.tile_m), "useful share of the tiles along M"),
        Feature("fill_n", lambda t: t[n] / (t.tiles_n * t.tile_n), f"useful share of the tiles along {n}"),
        Feature("fill_k", lambda t: t[k] / (t.tiles_k * t.tile_k * t.parts), "useful share of the K steps"),
    )


PRODUCT_STEPS: tuple[Feature, ...] = (
    Feature("log2_tiles_m", lambda t: log2_of(t.tiles_m), "log2 of the tiles along M"),
    Feature("log2_tiles_n", lambda t: log2_of(t.tiles_n), "log2 of the tiles along N"),
    Feature("log2_tiles_k", lambda t: log2_of(t.tiles_k), "log2 of the K steps of a tile"),
    Feature("log2_steps", lambda t: log2_of(t.steps), "log2 of the serial K steps"),
)
"""The sizes of `tiles_of_product`, and the `steps` of a compute unit."""

CU_TRAFFIC = Feature(
    "log2_cu_traffic",
    lambda t: log2(t.steps * (t.tile_m + t.tile_n) * t.tile_k * t.element_bytes),
    "log2 of the bytes one compute unit loads",
)
"""Of the `steps` of a product."""

REGISTERS = Feature("code_registers", lambda t: t.code_vgprs, "vector registers of a work-item, 0 if unknown")

BINARY: tuple[Feature, ...] = (
    REGISTERS,
    Feature("code_lds_kib", lambda t: t.code_lds_bytes / 1024, "LDS of the binary, KiB, 0 if unknown"),
)
"""Metrics of a kernel's binary."""
