"""The features of attention for models: arithmetic of prefill, bytes of decode."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import (
    ELEMENT_BYTES,
    Feature,
    FeatureSchema,
    ceil_div,
    flag,
    given,
    log2_of,
)
from tile_oracle.features.operation_features import OperationFeatures
from tile_oracle.features.schemas.configuration import word_code
from tile_oracle.features.schemas.pool_columns import (
    BINARY,
    CONFIGURED,
    INTENSITY,
    ROUNDS,
    TILES,
    logarithms,
    pool_schema,
)

_ATTENTION = FeatureSchema(
    "attention_1",
    "attention",
    (
        *(given(name, name) for name in ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim")),
        given("causal", "1 if a query sees only the keys up to its own place"),
        given("keys", "keys of a step"),
        Feature("element_bytes", lambda t: t.dtype, "bytes of one element"),
        Feature("group", lambda t: t.heads / t.kv_heads, "heads of Q for each head of K and V"),
        Feature("rows", lambda t: t.batch * t.heads * t.seq_q, "rows of the result"),
        Feature("steps", lambda t: np.ceil(t.seq_kv / t.keys), "steps over all keys"),
        Feature("rest", lambda t: np.mod(t.seq_kv, t.keys), "keys of the last step if it is not whole"),
        Feature(
            "visible",
            lambda t: t.seq_q * t.seq_kv - t.causal * t.seq_q * (t.seq_q - 1) / 2,
            "pairs of query and key that are computed, in one head",
        ),
        Feature(
            "flops",
            lambda t: 4 * t.batch * t.heads * t.visible * t.head_dim,
            "floating-point operations of both products",
        ),
        Feature(
            "bytes_total",
            lambda t: (
                2 * t.batch * (t.heads * t.seq_q + t.kv_heads * t.seq_kv) * t.head_dim * t.element_bytes
            ),
            "bytes of operands and result",
        ),
        INTENSITY,
    ),
    (),
    {"dtype": ELEMENT_BYTES},
)

_SHARING = word_code("attention_decode")
_INTERMEDIATES = (
    *TILES,
    *(one for one in _ATTENTION.features if one.name in ("group", "rows", "visible", "flops", "bytes_total")),
    Feature("element_bytes", lambda t: t.dtype, "bytes of one element"),
    Feature("shares", lambda t: flag(t.kernel_function == _SHARING), "heads that share keys are in one tile"),
    Feature("heights", lambda t: np.where(t.shares == 1, t.group, 1.0) * t.seq_q, "queries to be tiled"),
    Feature("slices", lambda t: t.rows / t.heights, "how often there are so many queries"),
    Feature("tiles", lambda t: t.slices * ceil_div(t.heights, t.tile_m) * t.parts, "workgroups"),
    Feature("steps", lambda t: ceil_div(t.seq_kv, t.tile_n * t.parts), "steps over the keys of one part"),
)

ATTENTION_POOL = pool_schema(
    "attention_pool_1",
    "attention",
    (
        *(given(name, name) for name in ("heads", "kv_heads", "head_dim")),
        *logarithms(("batch", "seq_q", "seq_kv", "rows", "flops", "bytes_total")),
        given("causal", "1 if a query sees only the keys up to its own place"),
        Feature("bytes_of_element", lambda t: t.element_bytes, "bytes of one element"),
        Feature("heads_of_a_key", lambda t: t.group, "heads of Q for each head of K and V"),
        INTENSITY,
        *CONFIGURED,
        *ROUNDS,
        Feature("log2_steps", lambda t: log2_of(t.steps), "log2 of the steps over the keys of one part"),
        Feature("queries_of_a_tile", lambda t: t.seq_q / t.tile_m, "queries over rows of a tile"),
        Feature("keys_of_a_part", lambda t: log2_of(t.seq_kv / t.parts), "log2 of the keys of one part"),
        Feature(
            "fill_q",
            lambda t: t.heights / (ceil_div(t.heights, t.tile_m) * t.tile_m),
            "useful share of the tiles of queries",
        ),
        *BINARY,
    ),
    _INTERMEDIATES,
    {"dtype": ELEMENT_BYTES},
)
"""For every data type and source."""

FEATURES = OperationFeatures(_ATTENTION, pool=ATTENTION_POOL)
"""See tile_oracle.features.operation_features."""
