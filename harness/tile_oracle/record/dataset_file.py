"""Writes records as one compact parquet file, whose bytes depend only on the rows.

It is an ordinary file of records: `load_records` and pandas read it like a run's parts. Sorting (rows of a
problem together), encodings and zstd keep it small. The footer describes the records (`read_about`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import RecordError, first_line
from tile_oracle.files.atomic_file import make_folder, write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.vouched_files import sha256_of_file
from tile_oracle.operation import operation_of_columns
from tile_oracle.record.derived_columns import without_tflops
from tile_oracle.record.schema import arrow_schema, compact_schema, op_of
from tile_oracle.record.sealed_parquet import DamagedError, bytes_of_tables, checked_bytes, table_bytes

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ORDER = ("problem", "kernel", "round", "time", "run")
"""Sort keys of the rows; ties are sorted by the other columns."""

_ABOUT = b"tile_oracle"
_LEVEL, _HIGHEST_LEVEL = 12, 22
_ENCODINGS = {
    **dict.fromkeys(("latency_ms", "latency_min_ms", "spread", "precision"), "BYTE_STREAM_SPLIT"),
    "time": "DELTA_BINARY_PACKED",
}
"""Of columns whose values hardly repeat. The others are dictionaries."""
NOT_REPLAYED = ("busy_ms", "build_wait_ms")
"""Columns of device time, from which a measuring session estimates its remaining time."""
_ROWS_AT_ONCE = 32_768


def in_order(records: pd.DataFrame) -> pd.DataFrame:
    """Sorts the rows in an order that depends only on their content."""
    import pandas as pd

    ties = records.duplicated(list(ORDER), keep=False)
    if not ties.any():
        return records.sort_values(list(ORDER), kind="stable", na_position="first", ignore_index=True)
    content = pd.Series("", index=records.index, dtype=object)
    content.loc[ties] = content_keys(records[ties])
    ordered = records.assign(_content=content).sort_values(
        [*ORDER, "_content"], kind="stable", na_position="first", ignore_index=True
    )
    return ordered.drop(columns="_content")


def content_keys(records: pd.DataFrame) -> pd.Series:
    """Returns a string for each record, equal for records with equal columns. Raises RecordError."""
    import pandas as pd

    # Via Arrow, which has the schema's types: pandas converts integers to floats in columns with nulls.
    rows = zip(*records_table(records).to_pydict().values(), strict=True)
    return pd.Series([repr(row) for row in rows], index=records.index, dtype=object)


def records_table(records: pd.DataFrame) -> pa.Table:
    """Records of one operation as an Arrow table of its schema. Raises RecordError."""
    import pyarrow as pa

    op = op_of(records["op"].unique()) if len(records) else operation_of_columns(records.columns).name
    schema = arrow_schema(op)
    try:
        return pa.Table.from_pandas(records[schema.names], schema=schema, preserve_index=False)
    except (pa.ArrowException, KeyError) as error:
        raise RecordError(f"these rows do not fit the record schema: {first_line(error)}") from None


def dataset_bytes(records: pd.DataFrame, about: Mapping[str, Any] | None = None) -> bytes:
    """Records of one operation as a parquet file, sorted; the same rows and `about` give the same bytes
    (with the same version of pyarrow).

    about: JSON values for the footer. Raises RecordError for rows that are not records.
    """
    return _packed(records_table(in_order(records)), about, _LEVEL)


def oracle_bytes(records: pd.DataFrame, about: Mapping[str, Any] | None = None) -> bytes:
    """`dataset_bytes` for replayed sessions: smaller, without columns that replays do not read, and without
    `tflops` where it follows from `latency_ms` to the bit (record.derived_columns)."""
    table = records_table(in_order(records))
    if table.num_rows:
        table = without_tflops(table, op_of(records["op"].unique()))
    return _packed(table.drop_columns(list(NOT_REPLAYED)), about, _HIGHEST_LEVEL)


def _packed(table: pa.Table, about: Mapping[str, Any] | None, level: int) -> bytes:
    footer = {_ABOUT: json.dumps(dict(about), sort_keys=True).encode()} if about else {}
    return table_bytes(
        table.replace_schema_metadata(footer),
        compression="zstd",
        compression_level=level,
        use_dictionary=[name for name in table.column_names if name not in _ENCODINGS],
        column_encoding=_ENCODINGS,
        write_statistics=False,
    )


def write_dataset(records: pd.DataFrame, path: Path, about: Mapping[str, Any] | None = None) -> int:
    """Writes `dataset_bytes` atomically; returns the size in bytes. Raises RecordError."""
    return write_whole(dataset_bytes(records, about), path)


def write_rows(records: pd.DataFrame, path: Path) -> int:
    """Writes compact records (dataset.load_records) of one operation atomically, in their order; returns the
    size in bytes. Takes less time and memory than `write_dataset`, and the file is larger. Raises
    RecordError."""
    import pyarrow as pa

    schema = compact_schema(arrow_schema(op_of(records["op"].unique())))
    parts = (records.iloc[first : first + _ROWS_AT_ONCE] for first in range(0, len(records), _ROWS_AT_ONCE))
    tables = (
        pa.Table.from_arrays(
            [pa.array(part[one.name], one.type, from_pandas=True) for one in schema], schema=schema
        )
        for part in parts
    )
    # Without the Arrow schema every reader gets texts, not dictionaries.
    repeated = [name for name in schema.names if name not in _ENCODINGS]
    data = bytes_of_tables(
        tables, compression="zstd", use_dictionary=repeated, write_statistics=False, store_schema=False
    )
    return write_whole(data, path)


def write_whole(data: bytes, path: Path) -> int:
    """Writes a file atomically and makes its parent folders; returns the size in bytes. Raises
    RecordError."""
    with disk_errors_as(RecordError, f"cannot write {path}"):
        make_folder(path.parent)
        write_atomically(path, data)
    return len(data)


def read_about(path: Path) -> dict[str, Any]:
    """Returns the description of the records in the file's footer; empty if there is none.

    Raises RecordError for a file that is not parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(pa.BufferReader(checked_bytes(path)))
        footer = (schema.metadata or {}).get(_ABOUT, b"{}")
    except (OSError, pa.ArrowException) as error:
        raise DamagedError(f"{path} is not a readable parquet file: {first_line(error)}") from None
    try:
        about = json.loads(footer)
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hex. Raises RecordError."""
    with disk_errors_as(RecordError, f"cannot read {path}"):
        return sha256_of_file(path)
