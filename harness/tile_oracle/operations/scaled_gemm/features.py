"""The features of scaled products for models."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Feature, FeatureSchema, ceil_div, given, log2_of
from tile_oracle.features.operation_features import OperationFeatures
from tile_oracle.features.schemas.code_columns import CODE_INPUTS
from tile_oracle.features.schemas.own_columns import log2_column
from tile_oracle.features.schemas.pool_columns import (
    BINARY,
    CONFIGURED,
    PRODUCT_STEPS,
    ROUNDS,
    TILES,
    fills_of_product,
    tiles_of_product,
)
from tile_oracle.operations.scaled_gemm.problem import BLOCK, OPERAND_DTYPES, SCALES

_WORDS = {
    "dtype": {dtype: float(place) for place, dtype in enumerate(OPERAND_DTYPES)},
    "scale": {scale: float(place) for place, scale in enumerate(SCALES)},
}
_PROBLEM = (
    *(given(name, name) for name in ("M", "N", "K")),
    Feature("is_e5m2", lambda t: t.dtype, "1 if A is e5m2"),
    Feature("scales", lambda t: t.scale, "one scale a matrix: 0, a row: 1, a block: 2"),
    Feature("flops", lambda t: 2 * t.M * t.N * t.K, "floating-point operations"),
    Feature("bytes_total", lambda t: (t.M + t.N) * t.K + 2 * t.M * t.N, "bytes of operands and result"),
    Feature("intensity", lambda t: t.flops / t.bytes_total, "operations per byte"),
)
_OWN = FeatureSchema(
    "scaled_gemm_1",
    "scaled_gemm",
    (
        *_PROBLEM,
        given("columns", "columns of C that are computed at a time"),
        Feature("rest", lambda t: np.mod(t.N, t.columns), "columns of the last time if they are fewer"),
        Feature("blocks", lambda t: np.ceil(t.K / BLOCK), "blocks of the depth"),
    ),
    (),
    _WORDS,
)
_POOL = FeatureSchema(
    "scaled_gemm_pool_1",
    "scaled_gemm",
    (
        *(
            Feature(f"log2_{name}", log2_column(name), f"log2 of {name}")
            for name in ("M", "N", "K", "flops", "bytes_total")
        ),
        *(one for one in _PROBLEM if one.name in ("is_e5m2", "scales", "intensity")),
        *CONFIGURED,
        *ROUNDS,
        *PRODUCT_STEPS,
        Feature(
            "log2_compute",
            lambda t: log2_of(t.steps * t.tile_m * t.tile_n * t.tile_k),
            "log2 of a compute unit's multiplications",
        ),
        Feature(
            "log2_cu_traffic",
            lambda t: log2_of(t.steps * (t.tile_m + t.tile_n) * t.tile_k),
            "log2 of the bytes one compute unit loads",
        ),
        *fills_of_product("N", "K"),
        *BINARY,
    ),
    (
        *TILES,
        *(one for one in _PROBLEM if one.name in ("flops", "bytes_total")),
        *tiles_of_product("N", "K"),
        Feature("tiles", lambda t: t.tiles_m * t.tiles_n * t.parts, "workgroups' tiles"),
        Feature("rounds", lambda t: ceil_div(t.tiles, t.cus), "rounds of tiles"),
        Feature("steps", lambda t: t.rounds * t.tiles_k, "serial K steps"),
    ),
    _WORDS,
    optional=CODE_INPUTS,
    from_names=True,
)
FEATURES = OperationFeatures(_OWN, pool=_POOL)
"""See tile_oracle.features.operation_features."""
