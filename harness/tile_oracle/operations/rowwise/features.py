"""The features of operations on rows for models. The bytes bound the time, so bandwidth decides."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, FeatureSchema, given
from tile_oracle.features.operation_features import OperationFeatures
from tile_oracle.operations.rowwise.problem import RowProblem


def row_features(problem: type[RowProblem], rows: str, columns: str) -> OperationFeatures:
    """The features of one operation. rows, columns: its names of both extents."""
    op, flops_per_element, weights = problem.op, problem.flops_per_element, int(problem.weighted)
    return OperationFeatures(
        FeatureSchema(
            f"{op}_1",
            op,
            (
                given(rows, "rows of the matrix"),
                given(columns, "columns of the matrix"),
                Feature("element_bytes", lambda t: t.dtype, "bytes of one element"),
                given("lanes", "elements of a row that are reduced in parallel"),
                Feature(
                    "rest",
                    lambda t: np.mod(getattr(t, columns), t.lanes),
                    "columns after the last whole step",
                ),
                Feature("steps", lambda t: np.ceil(getattr(t, columns) / t.lanes), "steps of a row"),
                Feature("row_bytes", lambda t: getattr(t, columns) * t.element_bytes, "bytes of one row"),
                Feature(
                    "flops",
                    lambda t: flops_per_element * getattr(t, rows) * getattr(t, columns),
                    "floating-point operations",
                ),
                Feature(
                    "bytes_total",
                    lambda t: (2 * getattr(t, rows) + weights) * getattr(t, columns) * t.element_bytes,
                    "bytes of operands and result, which bound the time",
                ),
            ),
            (),
            {"dtype": ELEMENT_BYTES},
        )
    )
