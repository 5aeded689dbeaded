"""Records -> the rows that a model is trained on: verified, sane, one a pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.errors import ModelError
from harness.heuristic.code_table import CODE_COLUMNS
from harness.heuristic.schemas import flops_of
from harness.oracle import records_op
from harness.record.schema import KERNEL_COLUMNS, PROBLEM_COLUMNS, kernel_columns, problem_columns

_FAILED = ("wrong", "crash", "timeout")

PAIR_COLUMNS: tuple[str, ...] = (*PROBLEM_COLUMNS, *KERNEL_COLUMNS)
"""The columns of a pair of convolution and kernel."""


def pair_columns_of(op: str) -> tuple[str, ...]:
    """The columns of a pair of problem and kernel of any operation. Raises RecordError."""
    return (*problem_columns(op), *kernel_columns(op))


@dataclass(frozen=True)
class TrainingRows:
    """One row per problem and kernel.

    `table` has `problem` and `kernel` (id and name), all their fields, `latency_ms` (the median of the
    pair's measurements), `tflops`, and `measurements` (how many there were) and,
    where the records have them, `source_hash` and the figures of the binary (CODE_COLUMNS). `left_out` counts
    what was not used, by reason.
    """

    table: pd.DataFrame
    left_out: dict[str, int]

    def __len__(self) -> int:
        return len(self.table)

    @property
    def problems(self) -> int:
        return int(self.table["problem"].nunique())


def training_rows(records: pd.DataFrame) -> TrainingRows:
    """The usable rows of a record table: ok, and of a pair that never failed in any of its rows.

    Raises ModelError when a column is missing or nothing is left.
    """
    needed = ("problem", "kernel", "status", "latency_ms", *pair_columns_of(records_op(records)))
    missing = [name for name in needed if name not in records]
    if missing:
        raise ModelError(f"the records lack the columns {', '.join(missing)}")
    latency = pd.to_numeric(records["latency_ms"], errors="coerce").to_numpy(dtype=np.float64)
    timed = np.isfinite(latency) & (latency > 0)
    status = records["status"].astype(str).to_numpy()
    ok = status == "ok"
    left_out = {str(word): int((status == word).sum()) for word in np.unique(status[~ok])}
    failed = records[np.isin(status, _FAILED)]
    tainted = np.zeros(len(records), dtype=bool)
    if len(failed):
        pairs = pd.MultiIndex.from_frame(records[["problem", "kernel"]].astype(str))
        tainted = ok & pairs.isin(pd.MultiIndex.from_frame(failed[["problem", "kernel"]].astype(str)))
    for reason, mask in (
        ("of pairs that failed another time", tainted),
        ("without a time", ok & ~timed & ~tainted),
    ):
        if mask.any():
            left_out[reason] = int(mask.sum())
    rows = records[ok & timed & ~tainted]
    if rows.empty:
        raise ModelError("there are no ok measurements to train on" + _counts(left_out))
    return TrainingRows(_one_a_pair(rows), left_out)


def _one_a_pair(rows: pd.DataFrame) -> pd.DataFrame:
    """Median time of each pair; work and identity are the same in all its rows."""
    keys = ["problem", "kernel"]
    if "round" in rows and rows["round"].nunique() > 1:
        last = rows.groupby(keys, sort=False)["round"].transform("max")
        rows = rows[rows["round"] == last]
    grouped = rows.groupby(keys, sort=True)
    table = grouped[list(pair_columns_of(records_op(rows)))].first()
    table["latency_ms"] = grouped["latency_ms"].median()
    for name in ("source_hash", *CODE_COLUMNS):
        if name in rows:
            table[name] = grouped[name].first()
    table["measurements"] = grouped.size()
    table = table.reset_index()
    table["tflops"] = flops_of(table) / (table["latency_ms"] * 1e9)
    return table


def _counts(left_out: dict[str, int]) -> str:
    if not left_out:
        return ""
    return "; left out: " + ", ".join(f"{count} {word}" for word, count in sorted(left_out.items()))
