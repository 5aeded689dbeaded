"""Features of fused products for models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import (
    Array,
    Feature,
    FeatureSchema,
    FeatureTable,
    ceil_div,
    given,
    log2_of,
)
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
from tile_oracle.operations.fused_gemm.epilogues import EPILOGUES
from tile_oracle.operations.fused_gemm.problem import DTYPES
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS

_WORDS = {
    name: {word: float(place) for place, word in enumerate(words)}
    for name, words in (("dtype", DTYPES), ("layout", GEMM_LAYOUTS), ("epilogue", tuple(EPILOGUES)))
}


def _with(part: str) -> Callable[[FeatureTable], Array]:
    return lambda t: t.word_is("epilogue", lambda word: part in word.split("_"))


_EPILOGUE = tuple(
    Feature(f"with_{part}", _with(part), f"1 with {part} in the epilogue")
    for part in ("bias", "gelu", "tanh", "silu", "mul", "residual")
)
_PROBLEM = (
    *(given(name, name) for name in ("M", "N", "K", "batch")),
    Feature("layouts", lambda t: t.layout, "rcr 0, rrr 1, crr 2, ccr 3"),
    Feature("flops", lambda t: 2 * t.batch * t.M * t.N * t.K, "floating-point operations"),
    Feature(
        "bytes_total",
        lambda t: (
            2
            * t.batch
            * ((t.M + t.N) * t.K + t.M * t.N * (1 + t.with_mul + t.with_residual) + t.N * t.with_bias)
        ),
        "bytes of operands and result",
    ),
    Feature("intensity", lambda t: t.flops / t.bytes_total, "operations per byte"),
    *_EPILOGUE,
)
_OWN = FeatureSchema(
    "fused_gemm_1",
    "fused_gemm",
    (
        *_PROBLEM,
        given("columns", "columns of C that are computed at a time"),
        Feature("rest", lambda t: np.mod(t.N, t.columns), "columns of the last time if they are fewer"),
    ),
    (),
    _WORDS,
)
_POOL = FeatureSchema(
    "fused_gemm_pool_1",
    "fused_gemm",
    (
        *(
            Feature(f"log2_{name}", log2_column(name), f"log2 of {name}")
            for name in ("M", "N", "K", "batch", "flops", "bytes_total")
        ),
        *(one for one in _PROBLEM if one.name in ("layouts", "intensity") or one in _EPILOGUE),
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
            lambda t: log2_of(2 * t.steps * (t.tile_m + t.tile_n) * t.tile_k),
            "log2 of the bytes one compute unit loads",
        ),
        *fills_of_product("N", "K"),
        *BINARY,
    ),
    (
        *TILES,
        *(one for one in _PROBLEM if one.name in ("flops", "bytes_total")),
        *tiles_of_product("N", "K"),
        Feature("tiles", lambda t: t.batch * t.tiles_m * t.tiles_n * t.parts, "workgroups' tiles"),
        Feature("rounds", lambda t: ceil_div(t.tiles, t.cus), "rounds of tiles"),
        Feature("steps", lambda t: t.rounds * t.tiles_k, "serial K steps"),
    ),
    _WORDS,
    optional=CODE_INPUTS,
    from_names=True,
)
FEATURES = OperationFeatures(_OWN, pool=_POOL)
"""See tile_oracle.features.operation_features."""
