"""The column `tflops`, which follows from the problem and `latency_ms`, so that files may omit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tile_oracle.record.invariants import check_rows

if TYPE_CHECKING:
    import pyarrow as pa

TFLOPS = "tflops"


def without_tflops(table: pa.Table, op: str) -> pa.Table:
    """Returns the table without `tflops` if `with_tflops` restores every value to the bit, else the table
    itself. Raises RecordError for rows that cannot be read again."""
    given = np.asarray(table.column(TFLOPS).to_numpy(), dtype=np.float64)
    restored = _tflops(table, check_rows(table, op, "the records"))
    return table.drop_columns([TFLOPS]) if np.array_equal(given, restored, equal_nan=True) else table


def with_tflops(table: pa.Table, flops: npt.NDArray[np.float64]) -> pa.Table:
    """Returns the table with `tflops` computed from the latencies; null without a latency.

    table: checked records of one operation, with all columns of the schema. flops: of each row's problem
    (record.invariants.check_rows).
    """
    import pyarrow as pa

    values = pa.array(_tflops(table, flops), from_pandas=True)
    place = table.column_names.index(TFLOPS)
    return table.set_column(place, table.schema.field(TFLOPS), values)


def _tflops(table: pa.Table, flops: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """TFLOPS of every row: operations / (latency in ms * 1e9); NaN without a latency."""
    latency = np.asarray(table.column("latency_ms").to_numpy(), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(flops / (latency * 1e9))
