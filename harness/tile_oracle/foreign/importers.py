"""Measurements of other tools -> records: published CSV and JSON results, benchmark logs, and own records.

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
from tile_oracle.atomic_file import write_atomically
from tile_oracle.errors import RecordError
from tile_oracle.foreign import ck_dsl
from tile_oracle.foreign.blas_results import is_blas_results, read_blas_results
from tile_oracle.record.dataset import load_records
from tile_oracle.foreign.dialect import dialect_of_header, dialect_of_text
from tile_oracle.foreign.pairs import ForeignFile
from tile_oracle.foreign.conversion import converted, records_of
from tile_oracle.foreign.reading import (
    csv_rows,
    csv_table,
    json_rows,
    log_rows,
    named_columns,
    parquet_rows,
    text_of,
)
from tile_oracle.foreign.summary import Imported, ImportSummary, Refusals, plain_name
from tile_oracle.foreign.kernel_tuner import kernel_tuner_document, read_kernel_tuner
from tile_oracle.foreign.nvbench import nvbench_document, read_nvbench
from tile_oracle.record.schema import arrow_schema, op_of
from tile_oracle.user_file import open_regular


def import_file(
    path: Path | str, arch: str, trust_unverified: bool = False, dtype: str | None = None
) -> Imported:
    """Reads one file as records of an architecture.

    The format is detected: our own records (a run's folder, or parquet), other parquet, CSV, JSON, or else a
    log with JSON among other lines. Rows whose output was not written become `wrong`; with `trust_unverified`
    they stay ok, as in the published figures. dtype: the data type of a CK DSL sweep that does not state one
    (record.ck_dsl). Raises RecordError for a file that cannot be read or holds no measurement, RuleError for
    an unknown architecture.
    """
    path = Path(path)
    load_arch(arch)
    if path.is_dir() or (path.suffix == ".parquet" and _is_own(path)):
        return _own(path, arch)
    refusals = Refusals()
    text = "" if path.suffix == ".parquet" else text_of(path)
    if is_blas_results(text):
        return _of_foreign(read_blas_results(text), path, arch)
    if path.suffix == ".parquet":
        rows = parquet_rows(path)
        dialect = dialect_of_header(list(rows.columns))
        rows = named_columns(path, rows, dialect)
    elif path.suffix.lower() == ".csv":
        header = next(csv.reader(io.StringIO(text[: 1 << 16], newline=None)), [])
        dialect = dialect_of_header(header)
        if ck_dsl.is_sweep(header):
            said = ck_dsl.sweep_dtype(path, dtype)
            rows = named_columns(path, ck_dsl.with_kernels(csv_table(path, text, header), said), dialect)
        else:
            rows = csv_rows(path, text, header, dialect)
    else:
        foreign = _foreign(text)
        if foreign is not None:
            return _of_foreign(foreign, path, arch)
        dialect = dialect_of_text(text)
        if path.suffix.lower() == ".json":
            rows = json_rows(path, text, dialect)
        else:
            rows = log_rows(text, refusals, dialect)
    if rows.empty:
        detail = (
            f"; {sum(refusals.counts.values())} malformed, first: {refusals.shown[0]}"
            if refusals.shown
            else ""
        )
        raise RecordError(
            f"{path} holds no measurement: a row needs a kernel name, dimensions and a latency{detail}"
        )
    run, source = plain_name(path.stem), plain_name(path.name)
    return converted(rows, dialect, run, source, arch, trust_unverified, refusals)


def write_records(records: pd.DataFrame, out: Path | str) -> None:
    """Writes records of one operation as a parquet file, atomically. Raises RecordError."""
    schema = arrow_schema(op_of(records["op"].unique()))
    table = pa.Table.from_pandas(records, schema=schema, preserve_index=False)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    try:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(out), buffer.getvalue())
    except OSError as error:
        raise RecordError(f"cannot write {out}: {error.strerror}") from None


def _own(path: Path, arch: str) -> Imported:
    records = load_records(path)
    other = records["arch"].notna() & (records["arch"] != arch)
    kept = records[~other].assign(arch=arch)
    if kept.empty:
        raise RecordError(f"{path} holds no records of {arch}")
    status = kept["status"].value_counts()
    refused = {f"of another architecture than {arch}": int(other.sum())} if other.any() else {}
    refused |= {
        f"status {name}, kept as it is": int(n) for name, n in status.items() if name not in ("ok", "wrong")
    }
    summary = ImportSummary(
        path.name, len(records), int(status.get("ok", 0)), int(status.get("wrong", 0)), 0, 0, refused
    )
    return Imported(kept.reset_index(drop=True), summary)


def _foreign(text: str) -> ForeignFile | None:
    """The measurements in a file of Kernel Tuner or NVBench; None for other text."""
    document = kernel_tuner_document(text)
    if document is not None:
        return read_kernel_tuner(document)
    document = nvbench_document(text)
    return None if document is None else read_nvbench(document)


def _of_foreign(foreign: ForeignFile, path: Path, arch: str) -> Imported:
    refusals = Refusals()
    for reason, example in foreign.refused:
        refusals.add(reason, example)
    if not foreign.rows:
        raise RecordError(
            f"{path} holds no usable row; {refusals.shown[0] if refusals.shown else 'it is empty'}"
        )
    op = op_of(row.kernel.op for row in foreign.rows)
    table = pd.DataFrame([row.as_columns() for row in foreign.rows])
    repeat = table.groupby(["problem", "kernel"]).cumcount()
    name, source = plain_name(path.stem), plain_name(path.name)
    table["run"] = [name if not one else f"{name}-repeat{one + 1}" for one in repeat]
    times = [row.time for row in foreign.rows]
    table["time"] = pd.to_datetime(pd.Series(times, dtype=object), utc=True, errors="coerce", format="mixed")
    counts = table["status"].value_counts()
    kept = {
        f"status {word}, kept as it is": int(number)
        for word, number in counts.items()
        if word not in ("ok", "wrong")
    }
    summary = ImportSummary(
        source,
        len(foreign.rows) + len(foreign.refused),
        int(counts.get("ok", 0)),
        int(counts.get("wrong", 0)),
        0,
        int((repeat > 0).sum()),
        {**refusals.counts, **kept},
        tuple(refusals.shown),
    )
    return Imported(records_of(table.to_dict("series"), op, arch, source), summary)


def _is_own(path: Path) -> bool:
    """Whether a parquet file has the columns of our records."""
    try:
        with open_regular(path) as file:
            return {"status", "problem", "round"} <= set(pq.read_schema(file).names)
    except (OSError, pa.ArrowException):
        return True  # load_records reports what is wrong with it
