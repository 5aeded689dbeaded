"""The features of products of experts for models."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Feature, FeatureSchema, ceil_div, given
from tile_oracle.features.operation_features import OperationFeatures
from tile_oracle.features.schemas.pool_columns import INTENSITY, codes, product_pool
from tile_oracle.operations.fused_moe.problem import PRODUCTS

_WORDS = codes(product=PRODUCTS)
_SIZES = ("tokens", "experts", "topk", "hidden", "intermediate")
_PROBLEM = (
    *(given(name, name) for name in _SIZES),
    Feature("is_down", lambda t: t.product, "1 for the down product"),
    given("zipf", "hundredths of the exponent of Zipf's law"),
    given("hot", "percent of the tokens that choose one certain expert"),
    Feature("pairs", lambda t: t.tokens * t.topk, "pairs of a token and an expert"),
    Feature("N", lambda t: np.where(t.product == 1, t.hidden, 2 * t.intermediate), "columns of the result"),
    Feature("K", lambda t: np.where(t.product == 1, t.intermediate, t.hidden), "depth"),
    Feature("rows_of_expert", lambda t: t.pairs / t.experts, "rows of an expert on average"),
    Feature("active", lambda t: np.minimum(t.pairs, t.experts), "the most experts with tokens"),
    Feature("flops", lambda t: 2 * t.pairs * t.N * t.K, "floating-point operations"),
    Feature(
        "bytes_total",
        lambda t: 2 * (t.pairs * (t.N + t.K) + t.active * t.N * t.K),
        "bytes of rows, of weights of active experts, and of the result",
    ),
    INTENSITY,
)
_OWN = FeatureSchema(
    "fused_moe_1",
    "fused_moe",
    (
        *_PROBLEM,
        given("rows", "rows of a block"),
        given("columns", "columns that are computed at a time"),
    ),
    (),
    _WORDS,
)
_POOL = product_pool(
    "fused_moe",
    _PROBLEM,
    ("is_down", "zipf", "hot", "intensity"),
    _WORDS,
    logs=(*_SIZES, "pairs", "N", "K", "rows_of_expert", "active", "flops", "bytes_total"),
    tiles=lambda t: t.tiles_m * t.tiles_n,
    element_bytes=lambda t: 2,
    sizes=(
        Feature(
            "tiles_m",
            lambda t: t.active * ceil_div(t.pairs / t.active, t.tile_m),
            "blocks of rows of a uniform routing",
        ),
        Feature("tiles_n", lambda t: ceil_div(t.N, t.tile_n), "tiles along N"),
        Feature("tiles_k", lambda t: ceil_div(t.K, t.tile_k), "steps along K"),
    ),
    fills=(
        Feature("fill_m", lambda t: t.pairs / (t.tiles_m * t.tile_m), "share of rows that are no padding"),
        Feature("fill_n", lambda t: t.N / (t.tiles_n * t.tile_n), "useful share of the tiles along N"),
        Feature("fill_k", lambda t: t.K / (t.tiles_k * t.tile_k), "useful share of the K steps"),
    ),
)
FEATURES = OperationFeatures(_OWN, pool=_POOL)
"""See tile_oracle.features.operation_features."""
