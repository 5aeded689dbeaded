"""Measurements of other tools -> records: published CSV and JSON results, and benchmark logs.

tile_oracle.kernel parses the kernel names. A row that contradicts itself is refused, or kept with status
`wrong`, and counted: nothing is dropped silently.
"""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tile_oracle.arch import load_arch
from tile_oracle.errors import ProblemSetError, RecordError, first_line
from tile_oracle.files.user_file import open_regular
from tile_oracle.foreign import ck_dsl, reading
from tile_oracle.foreign.contract import KERNEL_COLUMNS, Field
from tile_oracle.foreign.conversion import converted
from tile_oracle.foreign.dialect import Dialect, dialect_of, dialect_of_header, dialect_of_text, of_another
from tile_oracle.foreign.entry import KERNEL_WORDS, PROBLEM_WORDS, Entry
from tile_oracle.foreign.formats import IMPORT, recognised
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.foreign.summary import Imported, ImportSummary, plain_name
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.dataset_file import records_table, write_whole
from tile_oracle.record.invariants import check_rows
from tile_oracle.record.schema import op_of
from tile_oracle.record.sealed_parquet import table_bytes

# ---- Rows of other programs that name both kernel and problem, as a table with figures in our units

_FILLED: Mapping[str, Field] = {
    name: Field(name)
    for name in (
        *("kernel", "problem", "status", "detail", "latency_ms", "latency_min_ms", "latency_max_ms"),
        *("spread", "samples", "ended", "cache"),
    )
}


def read_pairs(
    entries: Iterable[Entry], own: Mapping[str, Field], summary: ImportSummary, op: str = ""
) -> tuple[pd.DataFrame, Dialect] | None:
    """Returns the rows that name a kernel, of an operation or of that which most are of, and what their names
    mean; None if there are none. The others are refused. own: the fields of the format."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in entries:
        why = one.why or next((f"{what}: more than the operation" for what in one.more), "")
        why = why or ("" if one.kernel else one.why_no_kernel)
        if one.problem is None or why:
            summary.refuse(why, one.text)
        else:
            rows[one.problem.op].append(_row(one, one.problem))
    most_first = sorted(rows, key=lambda name: -len(rows[name]))
    op = op or next(iter(most_first), "")
    for other in (name for name in most_first if name != op):
        summary.refuse(of_another(other), rows[other][0]["kernel"], len(rows[other]))
    if op not in rows:
        return None
    dialect = dialect_of(op)
    return pd.DataFrame(rows[op]), replace(dialect, own={**dialect.own, **own, **_FILLED})


def _row(one: Entry, problem: Problem) -> dict[str, Any]:
    sizes = operation_named(problem.op).free_fields
    times = [float(time) if _is_time(time) else math.nan for time in one.times_ms]
    row = {"kernel": one.kernel, "problem": problem.id, **_figures(times), **one.figures}
    for name, value in one.stated.items():
        word = name.strip().lower()
        another = name not in sizes and word in map(str.lower, sizes)  # a parameter n, but a problem's N
        if not another and word not in (*row, *KERNEL_WORDS, *PROBLEM_WORDS):
            row[word] = value
    return {plain_name(k): plain_name(v) if isinstance(v, str) else v for k, v in row.items()}


def _figures(times_ms: Sequence[float]) -> dict[str, Any]:
    if not times_ms:
        return {}
    low, median, high = np.quantile(times_ms, [0.25, 0.5, 0.75])
    found = {"latency_ms": float(median), "latency_min_ms": min(times_ms), "samples": len(times_ms)}
    return found | ({"spread": float((high - low) / median)} if len(times_ms) > 1 else {})


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf


def import_file(
    path: Path | str,
    arch: str,
    trust_unverified: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    layout: str = "",
    op: str = "",
) -> Imported:
    """Reads one file as records of an architecture.

    The format is detected: parquet, CSV, JSON, or else a log with JSON among other lines. Rows whose output
    was not written become `wrong`; with `trust_unverified` they stay ok, as in the published figures. dtype:
    the data type of a CK DSL sweep that does not state one (ck_dsl). layout: that of GEMMs in a tuner's file
    that does not state it. device: the one whose rows are taken from a file of several. op: the operation
    whose rows are; by default that of most. Raises RecordError for a file that cannot be read or holds no
    measurement, RuleError for an unknown architecture.
    """
    path = Path(path)
    load_arch(arch)
    if path.is_dir() or (path.suffix == ".parquet" and _is_own(path)):
        raise RecordError(f"{path} holds tile-oracle's own records: `tile-oracle runs merge` takes them")
    summary = ImportSummary(plain_name(path.name))
    rows, dialect = _rows(path, dtype, layout, op, summary)
    if rows.empty:
        needed = "a row needs a kernel name, dimensions and a latency"
        raise RecordError(f"{path} holds no measurement: {needed}; {summary.first}")
    return converted(rows, dialect, plain_name(path.stem), arch, trust_unverified, summary, device)


def _rows(
    path: Path, dtype: str | None, layout: str, op: str, summary: ImportSummary
) -> tuple[pd.DataFrame, Dialect]:
    """Returns the rows of a file with its own names, and what they mean."""
    if path.suffix == ".parquet":
        table = reading.parquet_rows(path)
        if ck_dsl.is_rocke(table):
            table = ck_dsl.with_rocke_kernels(path, table)
        names = [str(name) for column in KERNEL_COLUMNS if column in table for name in table[column].unique()]
        dialect = dialect_of_header(list(table.columns), "\n".join(names), op)
        return reading.named_columns(path, table, dialect), dialect
    text = reading.text_of(path)
    if (pairs := _pairs(path, text, layout, op, summary)) is not None:
        return pairs
    if path.suffix.lower() in (".csv", ".tsv"):
        table = reading.csv_table(path, text)
        header = list(table.columns)
        dialect = dialect_of_header(header, text, op)
        if ck_dsl.is_sweep(header):
            table = ck_dsl.with_kernels(path, table, ck_dsl.sweep_dtype(path, dtype))
        return reading.named_columns(path, table, dialect), dialect
    dialect = dialect_of_text(text, op)
    if path.suffix.lower() == ".json":
        return reading.json_rows(path, text, summary, dialect), dialect
    return reading.log_rows(text, summary, dialect), dialect


def _pairs(
    path: Path, text: str, layout: str, op: str, summary: ImportSummary
) -> tuple[pd.DataFrame, Dialect] | None:
    """Returns the rows of a file of a known format that names kernels and problems by its own rules."""
    known = recognised(path, text)
    if known is not None and IMPORT not in known.taken_by:
        raise RecordError(f"{path}: {known.said}")
    listed = ListFile(io.BytesIO(text.encode("utf-8", "replace")), path, plain_name(path), layout)
    entries = None if known is None else known.entries_in(listed)
    if known is None or entries is None:
        return None
    try:
        found = read_pairs(entries, known.fields, summary, op)
    except ProblemSetError as error:
        raise RecordError(first_line(error)) from None
    if found is None:
        raise RecordError(f"{path} holds no usable row; {summary.first}")
    return found


def write_records(records: pd.DataFrame, out: Path | str) -> None:
    """Writes records of one operation as a parquet file, atomically. Raises RecordError, also for rows that
    no reader of records would take."""
    table = records_table(records)
    check_rows(table, op_of(records["op"].unique()), out)
    write_whole(table_bytes(table, compression="zstd"), Path(out))


def _is_own(path: Path) -> bool:
    """Returns whether a parquet file has the columns of our records."""
    try:
        with open_regular(path) as file:
            return {"status", "problem", "round"} <= set(pq.read_schema(file).names)
    except (OSError, pa.ArrowException):
        return False  # reading it says what is wrong with it
