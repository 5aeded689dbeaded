"""Features of fused products for models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import Array, Feature, FeatureSchema, FeatureTable, given
from tile_oracle.features.operation_features import OperationFeatures
from tile_oracle.features.schemas.pool_columns import INTENSITY, codes, product_pool
from tile_oracle.operations.fused_gemm.epilogues import EPILOGUES
from tile_oracle.operations.fused_gemm.problem import DTYPES
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS

_WORDS = codes(dtype=DTYPES, layout=GEMM_LAYOUTS, epilogue=EPILOGUES)


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
    INTENSITY,
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
_POOL = product_pool(
    "fused_gemm",
    _PROBLEM,
    ("layouts", "intensity", *(one.name for one in _EPILOGUE)),
    _WORDS,
    logs=("M", "N", "K", "batch", "flops", "bytes_total"),
    tiles=lambda t: t.batch * t.tiles_m * t.tiles_n * t.parts,
    element_bytes=lambda t: 2,
)
FEATURES = OperationFeatures(_OWN, pool=_POOL)
"""See tile_oracle.features.operation_features."""
