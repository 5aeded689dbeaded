"""The features of scaled products for models."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Array, Feature, FeatureSchema, FeatureTable, given
from tile_oracle.features.operation_features import OperationFeatures
from tile_oracle.features.schemas.pool_columns import INTENSITY, codes, product_pool
from tile_oracle.operations.scaled_gemm.problem import BLOCK, OPERAND_DTYPES, SCALES

_WORDS = codes(dtype=OPERAND_DTYPES, scale=SCALES)


def _bytes(t: FeatureTable) -> Array:
    """Returns the bytes of an element of A or B."""
    return np.where(t.dtype == _WORDS["dtype"]["fp4_e2m1"], 0.5, 1.0)


_PROBLEM = (
    *(given(name, name) for name in ("M", "N", "K")),
    Feature("is_e5m2", lambda t: t.dtype, "1 if A is e5m2, 2 if it is e2m1"),
    Feature("scales", lambda t: t.scale, "one scale a matrix: 0, a row: 1, a block: 2, by MX: 3"),
    Feature("flops", lambda t: 2 * t.M * t.N * t.K, "floating-point operations"),
    Feature("bytes_total", lambda t: (t.M + t.N) * t.K * _bytes(t) + 2 * t.M * t.N, "bytes of A, B and C"),
    INTENSITY,
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
_POOL = product_pool(
    "scaled_gemm",
    _PROBLEM,
    ("is_e5m2", "scales", "intensity"),
    _WORDS,
    logs=("M", "N", "K", "flops", "bytes_total"),
    tiles=lambda t: t.tiles_m * t.tiles_n * t.parts,
    element_bytes=_bytes,
)
FEATURES = OperationFeatures(_OWN, pool=_POOL)
"""See tile_oracle.features.operation_features."""
