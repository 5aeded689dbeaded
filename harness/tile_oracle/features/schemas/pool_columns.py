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
