"""Measurements of other tools -> records: published CSV and JSON results, and benchmark logs.

tile_oracle.kernel parses the kernel names. A row that contradicts itself is refused, or kept with status
`wrong`, and counted: nothing is dropped silently.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tile_oracle.arch import load_arch
from tile_oracle.errors import ProblemSetError, RecordError, first_line
from tile_oracle.files.table_file import TableError, check_csv
from tile_oracle.files.user_file import open_regular
from tile_oracle.foreign import ck_dsl, reading
from tile_oracle.foreign.contract import KERNEL_COLUMNS
from tile_oracle.foreign.conversion import converted
from tile_oracle.foreign.dialect import Dialect, dialect_of_header, dialect_of_text
from tile_oracle.foreign.formats import IMPORT, recognised
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.foreign.pairs import read_pairs
from tile_oracle.foreign.summary import Imported, ImportSummary, plain_name
from tile_oracle.record.dataset_file import records_table, write_whole
from tile_oracle.record.invariants import check_rows
from tile_oracle.record.schema import op_of
from tile_oracle.record.sealed_parquet import table_bytes


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
    if path.suffix.lower() == ".csv":
        try:
            check_csv(text)
        except TableError as error:
            raise RecordError(f"{path} cannot be read: {error}") from None
        header = next(csv.reader(io.StringIO(text[: 1 << 16], newline=None)), [])
        dialect = dialect_of_header(header, text, op)
        table = reading.csv_table(path, text, header)
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
