"""Our feature schema of grouped convolution for pools of several sources."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES
from tile_oracle.features.formulas import formulas
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
    *formulas("""
tiles = tiles_m * tiles_n * G * parts  # workgroups' tiles
steps = ceil_div(tiles, cus) * tiles_k  # serial K steps
"""),
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
