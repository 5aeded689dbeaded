"""Our feature schema of GEMM for pools of several sources: native kernels, Triton, libraries."""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, log2
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

_INTERMEDIATES = (
    *PROBLEM_INPUTS,
    *TILES,
    *tiles_of_product("N", "K"),
    Feature("tiles", lambda t: t.tiles_m * t.tiles_n * t.parts, "workgroups' tiles"),
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
        Feature(
            "log2_compute",
            lambda t: log2(t.steps * t.tile_m * t.tile_n * t.tile_k),
            "log2 of a compute unit's multiplications",
        ),
        CU_TRAFFIC,
        *fills_of_product("N", "K"),
        *BINARY,
    ),
    _INTERMEDIATES,
    {**WORD_CODES, "dtype": ELEMENT_BYTES},
)
"""For every layout, data type and source; figures of the binaries where they are known."""
