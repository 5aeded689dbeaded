"""Rows as a session records them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from tile_oracle.measure.measurement import Measurement
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.journal import rows_table

Row = dict[str, Any]


def make_row(n: int = 0, **columns: Any) -> Row:
    """The row of the n-th pair of a run, measured n seconds after its start. If `columns` has one of latency
    and throughput, the other follows from it."""
    problem = GroupedConvProblem("forward", "fp32", 2, 1, 4, 4, 1, 5 + n // 4, 5, 3, 3)
    kernel = GroupedConvKernel("forward", "fp32", 2, 16, 16 + n % 4, 16, 1, 1, 1, 4, 16, 1)
    measurement = Measurement(
        problem, kernel, "ok", "", 0, 0.5 + n, 0.25 + n, 0.01, 11, check="full", check_points=36
    )
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(seconds=n)
    row = {"run": "r", "time": time.isoformat(), **measurement.as_row(), **columns}
    if row["latency_ms"] and "latency_ms" in columns and "tflops" not in columns:
        row["tflops"] = problem.tflops(row["latency_ms"])
    if row["tflops"] and "tflops" in columns and "latency_ms" not in columns:
        row["latency_ms"] = problem.flops / (row["tflops"] * 1e9)
    if row["latency_ms"] and "latency_min_ms" not in columns:
        row["latency_min_ms"] = min(row["latency_min_ms"], row["latency_ms"])
    return row


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows as a table of records."""
    return rows_table(rows).to_pandas()
