"""The features of operations on rows for models. The bytes bound the time, so bandwidth decides."""

from __future__ import annotations

import numpy as np

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, FeatureSchema, ceil_div, given, log2_of
from tile_oracle.features.operation_features import OperationFeatures
from tile_oracle.features.schemas.own_columns import log2_column
from tile_oracle.features.schemas.pool_columns import CONFIGURED, REGISTERS, ROUNDS, pool_schema
from tile_oracle.operations.rowwise.problem import RowProblem


def row_features(problem: type[RowProblem], rows: str, columns: str) -> OperationFeatures:
    """Returns the features of one operation. rows, columns: its names of both extents."""
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
        ),
        pool=_pool(op, rows, columns),
    )


def _pool(op: str, rows: str, columns: str) -> FeatureSchema:
    """Returns the schema for kernels of every source. A workgroup has `tile_m` rows, a step `tile_n`
    columns."""
    return pool_schema(
        f"{op}_pool_1",
        op,
        (
            Feature("log2_rows", log2_column(rows), "log2 of the rows"),
            Feature("log2_columns", log2_column(columns), "log2 of the columns"),
            Feature("bytes_of_element", lambda t: t.element_bytes, "bytes of one element"),
            Feature("log2_bytes", lambda t: log2_of(t.elements * t.element_bytes), "log2 of its bytes"),
            *CONFIGURED,
            *ROUNDS,
            Feature("steps", lambda t: ceil_div(getattr(t, columns), t.tile_n), "steps of a row"),
            Feature(
                "fill", lambda t: getattr(t, columns) / (t.steps * t.tile_n), "useful share of the steps"
            ),
            REGISTERS,
        ),
        (
            Feature("element_bytes", lambda t: t.dtype, "bytes of one element"),
            Feature("elements", lambda t: getattr(t, rows) * getattr(t, columns), "elements of a matrix"),
            Feature("cus", lambda t: np.maximum(t.hw_num_cus, 1.0), "compute units, at least 1"),
            Feature("tile_m", lambda t: np.maximum(t.kernel_tile_m, 1.0), "rows of a workgroup"),
            Feature(
                "tile_n",
                lambda t: np.where(t.kernel_tile_n > 0, t.kernel_tile_n, getattr(t, columns)),
                "columns of a step, the whole row if unknown",
            ),
            Feature("tiles", lambda t: ceil_div(getattr(t, rows), t.tile_m), "workgroups"),
        ),
        {"dtype": ELEMENT_BYTES},
    )
