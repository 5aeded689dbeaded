"""Our feature schema of grouped convolution for pools of several sources."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, ceil_div
from tile_oracle.features.schemas.grouped_conv_own import PROBLEM_COLUMNS, PROBLEM_INPUTS
from tile_oracle.features.schemas.pool_columns import (
    BINARY,
    CONFIGURED,
    CU_TRAFFIC,
    PRODUCT_STEPS,
    ROUNDS,
    TILES,
    fills_of_product,
    pool_schema,
    tiles_of_product,
)

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    *TILES,
    *tiles_of_product("Ng", "Kg"),
    Feature("tiles", lambda t: t.tiles_m * t.tiles_n * t.G * t.parts, "workgroups' tiles"),
    Feature("steps", lambda t: ceil_div(t.tiles, t.cus) * t.tiles_k, "serial K steps"),
)

GROUPED_CONV_POOL = pool_schema(
    "grouped_conv_pool_1",
    "grouped_conv",
    (
        *PROBLEM_COLUMNS,
        *CONFIGURED,
        *ROUNDS,
        *PRODUCT_STEPS,
        CU_TRAFFIC,
        *fills_of_product("Ng", "Kg"),
        *BINARY,
    ),
    _INTERMEDIATES,
    {"dtype": ELEMENT_BYTES},
)
"""For every direction, 2D and 3D, data type and source."""
