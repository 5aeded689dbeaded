"""The column `tflops`, which follows from the problem and `latency_ms`, so that files may omit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tile_oracle.problem import problem_from_row
from tile_oracle.record.schema import problem_columns

if TYPE_CHECKING:
    import pyarrow as pa

TFLOPS = "tflops"


def without_tflops(table: pa.Table, op: str) -> pa.Table:
    """Returns the table without `tflops` if `with_tflops` restores every value to the bit, else the table
    itself."""
    given = np.asarray(table.column(TFLOPS).to_numpy(), dtype=np.float64)
    return (
        table.drop_columns([TFLOPS]) if np.array_equal(given, _tflops(table, op), equal_nan=True) else table
    )


def with_tflops(table: pa.Table, op: str) -> pa.Table:
    """Returns the table with `tflops` computed from the latencies; null without a latency.

    table: checked records of one operation (record.invariants), with all columns of the schema.
    """
    import pyarrow as pa

    values = pa.array(_tflops(table, op), from_pandas=True)
    place = table.column_names.index(TFLOPS)
    return table.set_column(place, table.schema.field(TFLOPS), values)


def _tflops(table: pa.Table, op: str) -> npt.NDArray[np.float64]:
    """TFLOPS of every row: operations / (latency in ms * 1e9); NaN without a latency."""
    latency = np.asarray(table.column("latency_ms").to_numpy(), dtype=np.float64)
    encoded = table.column("problem").combine_chunks().dictionary_encode()
    of_row = encoded.indices.to_numpy()
    _, first = np.unique(of_row, return_index=True)
    rows = table.select(list(problem_columns(op))).take(first).to_pylist()
    flops = np.array([float(problem_from_row({"op": op, **row}).flops) for row in rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(flops[of_row] / (latency * 1e9))
