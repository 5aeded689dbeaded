"""The features of attention for models: arithmetic of prefill, bytes of decode."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, FeatureSchema, given
from tile_oracle.features.operation_features import OperationFeatures

ATTENTION_FEATURES = OperationFeatures(
    FeatureSchema(
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
            Feature("intensity", lambda t: t.flops / t.bytes_total, "operations per byte"),
        ),
        (),
        {"dtype": ELEMENT_BYTES},
    )
)
"""See tile_oracle.features.operation_features."""
