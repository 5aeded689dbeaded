"""Reads records of one or several runs as one table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import RecordError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.vouched_files import check_file
from tile_oracle.process.arrow_memory import give_back
from tile_oracle.record.derived_columns import TFLOPS, with_tflops
from tile_oracle.record.invariants import check_rows
from tile_oracle.record.journal import (
    journals_in,
    names_in,
    parts_in,
    read_journal,
    rows_table,
    seal_abandoned,
    tell_in_log,
)
from tile_oracle.record.schema import (
    STAY_TEXT,
    arrow_schema,
    columns,
    compact_schema,
    later_columns,
    op_of,
)
from tile_oracle.record.sealed_parquet import read_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.progress_line import steps, wait

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

IDENTITY = ["run", "problem", "kernel", "round"]
"""The columns that identify a row of a dataset."""
_MEASUREMENT = [*IDENTITY, "time", "status", "latency_ms"]
"""Where the run has no name."""
_CLOCKS_DIFFER = timedelta(days=1)
"""How far the clock of a machine may be ahead."""


def measurements_folder(run: Path) -> Path:
    """Returns the folder of a run's parts: RUN/measurements."""
    return run / "measurements"


def load_records(paths: Path | str | Iterable[Path | str], *, compact: bool = False) -> pd.DataFrame:
    """Reads runs, folders of parts or parquet files as one frame with the schema's columns in order.

    compact: what repeats few values (device, flags, the numbers of problems and kernels, ...) becomes
    categoricals with sorted categories, half of the memory. Journals left by dead processes are sealed first.
    Columns that a file lacks are null, except `tflops`, which is computed from the latency. Rows are sorted
    by time; of rows with the same identity, the newest is kept, and of equal ones without a run one. Raises
    RecordError for files that are missing, damaged, not records or of several operations, and for records of
    native and CK Tile kernels together, because these share names.
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    tables = [table for path in listed for table in _tables(Path(path), compact)]
    found = op_of(table.column("op")[0].as_py() for table in tables if table.num_rows)
    names = [column.name for column in columns(found)]
    if not tables:
        return arrow_schema(found).empty_table().to_pandas()
    tables = [table for table in tables if table.num_rows] or tables[:1]
    if compact:
        return _compact_frame(tables, names)
    frame = _frame(tables)
    return frame.loc[_rows_in_order(frame), names].reset_index(drop=True)


def _frame(tables: list[pa.Table]) -> pd.DataFrame:
    """Returns the rows of all tables."""
    import pandas as pd

    frames = [table.to_pandas() for table in tables]
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _compact_frame(tables: list[pa.Table], names: list[str]) -> pd.DataFrame:
    """Returns the rows of all tables as `load_records` returns them. Empties the list: column by column, what
    was converted is released, so that the rows are never there twice."""
    import pandas as pd
    import pyarrow as pa

    schema = tables[0].select(names).schema
    whole = pa.concat_tables([table.select(names).cast(schema) for table in tables]).unify_dictionaries()
    tables.clear()
    give_back()  # what decoding the files needed
    same = _MEASUREMENT if whole.column("run").null_count else ["time", *IDENTITY]
    rows = _rows_in_order(whole.select(["implementation", *same]).to_pandas())
    give_back()
    as_they_are = bool((rows[1:] > rows[:-1]).all()) and len(rows) == whole.num_rows
    arrays, whole, taken = dict(zip(names, whole.columns, strict=True)), None, pa.array(rows)
    series = {}
    for name in names:
        array = arrays.pop(name)
        values = (array if as_they_are else array.take(taken)).to_pandas()
        kind = values.dtype
        if isinstance(kind, pd.CategoricalDtype) and not kind.categories.is_monotonic_increasing:
            values = values.cat.reorder_categories(sorted(values.cat.categories))
        series[name] = values
        if len(series) % 8 == 0:
            give_back()  # else the holes that columns leave add up to half of them
    return pd.DataFrame(series, copy=False)


def with_texts(records: pd.DataFrame) -> pd.DataFrame:
    """Compact records in the plain form."""
    import pandas as pd

    types = {
        name: records["status"].dtype
        if column.cat.categories.dtype != np.int64
        else np.float64
        if column.hasnans
        else np.int64
        for name, column in records.items()
        if isinstance(column.dtype, pd.CategoricalDtype)
    }
    return records.astype(types) if types else records


def _rows_in_order(table: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns the places of the rows that count, by time. Raises RecordError for records of native and CK
    Tile kernels."""
    both = _implementations(table["implementation"])
    if len(both) > 1:
        # A name with a dot says whose kernel it is (tile_oracle.kernel.named).
        alike = ~table["kernel"].astype(str).str.contains(".", regex=False)
        both = _implementations(table.loc[alike, "implementation"])
    if len(both) > 1:
        raise RecordError(
            f"the records are of several implementations, {' and '.join(both)}, whose kernels have the same "
            "names: read them separately"
        )
    by_time = table[["time"]].sort_values("time", kind="stable", na_position="first").index
    identity = table.loc[by_time, IDENTITY]
    named = identity["run"].notna()
    again = identity.duplicated(keep="last") & named
    if not named.all():  # such rows may be several measurements, unless they are the same one
        timed = table.loc[by_time[~named], _MEASUREMENT].dropna(subset="time")
        again[copies := timed.index[timed.duplicated(keep="last")]] = True
        if len(copies):
            tell_in_log(f"{count(len(copies), 'row')} given more than once: left out")
    places: npt.NDArray[np.int64] = by_time[~again.to_numpy()].to_numpy()
    return places


def _implementations(column: pd.Series) -> list[str]:
    return sorted({str(word) for word in column.dropna().unique() if word})


def read_rows(path: Path | str) -> pd.DataFrame:
    """Returns every row of a run, a folder of parts or a parquet file, unfiltered and in no particular order.

    Raises RecordError as `load_records` does.
    """
    tables = [table for table in _tables(Path(path)) if table.num_rows]
    return _frame(tables) if tables else arrow_schema(op_of([])).empty_table().to_pandas()


def _tables(path: Path, compact: bool = False) -> list[pa.Table]:
    """Returns the tables of a path, with all columns of the schema. compact: see `load_records`. Says in the
    log how many rows are of a time to come: of the same pair's the newest counts."""
    import pyarrow.compute as pc

    with disk_errors_as(RecordError, f"no records at {str(path)[:200]}"):
        tables = _read_tables(path, compact)
    until = datetime.now(UTC) + _CLOCKS_DIFFER
    if later := sum(pc.sum(pc.greater(table.column("time"), until)).as_py() or 0 for table in tables):
        told = "measured at a time to come: a clock was wrong, and rows count as newer than they are"
        tell_in_log(f"{path}: {count(later, 'row')} {told}")
    return tables


def _read_tables(path: Path, compact: bool) -> list[pa.Table]:
    if path.is_file():
        with wait(f"reading records of {path.name}"):
            check_file(path, RecordError)
            return [_read_part(path, compact)]
    if not path.is_dir():
        raise RecordError(f"no records at {path}: give a run's folder, a folder of parts or a parquet file")
    folder = measurements_folder(path) if measurements_folder(path).is_dir() else path
    seal_abandoned(folder)
    # Journals before parts: a journal that is sealed meanwhile is read twice, never missed.
    journals = journals_in(folder)
    tables = [table for journal in journals if (table := _journal_table(journal, compact)) is not None]
    parts = parts_in(folder) or [
        path
        for path in names_in(folder, "", ".parquet")
        if path.name != "selection.parquet" and not path.name.startswith((".", "_"))
    ]
    if not parts and not journals:
        runs = [one for one in sorted(folder.iterdir()) if measurements_folder(one).is_dir()]
        if runs:
            named = f"{len(runs)} runs" if len(runs) > 1 else "a run"
            raise RecordError(f"no records in {folder} itself, but it holds {named}: give {runs[-1]}")
        raise RecordError(f"no records in {folder}: it holds no parquet part (did the run measure anything?)")
    bytes_of = [part.stat().st_size for part in parts]
    progress = steps(f"reading records of {path.name}", parts, bytes_of)
    return tables + [_read_part(part, compact) for part in progress]


def _journal_table(journal: Path, compact: bool) -> pa.Table | None:
    """Returns the rows of an unsealed journal; None if there are none."""
    lines = read_journal(journal)
    if lines.damaged:
        tell_in_log(f"{journal} has damaged lines ({len(lines.damaged)}): they are left out")
    if not lines.rows:
        return None
    table = rows_table(lines.rows)
    if not compact:
        return table
    schema = compact_schema(table.schema)
    return table.from_arrays(
        [_as_type(column, field.type) for column, field in zip(table.columns, schema, strict=True)],
        schema=schema,
    )


def _read_part(path: Path, compact: bool) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = read_table(path, texts=STAY_TEXT if compact else None)
    needed = {"op", "problem", "kernel", "status"}
    if missing := needed - set(table.column_names):
        raise RecordError(
            f"{path} is not a file of records: it lacks the column {sorted(missing)[0]!r}; "
            "`tile-oracle runs import` converts foreign files"
        )
    try:
        op = op_of(pc.unique(table.column("op")).to_pylist())
        schema = arrow_schema(op)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    if compact:
        schema = compact_schema(schema)
    there, rows = dict(zip(table.column_names, table.columns, strict=True)), table.num_rows
    for name, value in later_columns(op).items():
        if name not in there:
            there[name] = pa.chunked_array([pa.repeat(value, rows)])
    has_tflops, table = TFLOPS in there, None  # each column is released when its type is another
    arrays = []
    for field in schema:
        column = there.pop(field.name, None)
        try:
            arrays.append(pa.nulls(rows, field.type) if column is None else _as_type(column, field.type))
        except pa.ArrowException:
            raise RecordError(
                f"{path}: column {field.name!r} holds {column.type}, not {field.type}"
            ) from None
    give_back()
    whole = pa.Table.from_arrays(arrays, schema=schema)
    flops = check_rows(whole, op, path)
    return whole if has_tflops else with_tflops(whole, flops)


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Raises pa.ArrowException for values that do not fit."""
    import pyarrow as pa

    if column.type == wanted:
        return column
    if pa.types.is_dictionary(wanted):
        return column.cast(wanted.value_type).dictionary_encode()
    return column.cast(wanted)
