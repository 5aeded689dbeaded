"""The features of softmax for models."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import Feature, FeatureSchema, OperationFeatures, given

FEATURES = OperationFeatures(
    FeatureSchema(
        "row_softmax_1",
        "row_softmax",
        (
            given("rows", "rows"),
            given("columns", "columns of a row"),
            given("block", "elements side by side"),
            Feature("rest", lambda t: np.mod(t.columns, t.block), "columns after the last whole block"),
            Feature("flops", lambda t: 5 * t.rows * t.columns, "floating-point operations"),
            Feature("bytes_total", lambda t: 8 * t.rows * t.columns, "bytes of both matrices"),
        ),
    )
)
