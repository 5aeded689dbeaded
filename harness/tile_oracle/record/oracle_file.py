"""Writes the oracle file of replayed sessions: a file of records, compressed as far as parquet allows.

Every column uses the encoding with the smallest result, at zstd's highest level. Stored values are
bit-identical to the records. Columns that replays do not read are left out, and so is `tflops` if it can be
computed from `latency_ms` (record.derived_columns).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tile_oracle.record.dataset_file import in_order, records_table, with_about
from tile_oracle.record.derived_columns import without_tflops
from tile_oracle.record.schema import op_of
from tile_oracle.record.sealed_parquet import table_bytes
from tile_oracle.terminal.progress_line import wait

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NOT_REPLAYED = ("busy_ms", "build_wait_ms")
"""The column with a pair's device time, from which a measuring session estimates its remaining time."""

_LEVEL = 22
_DICTIONARY, _PLAIN = "dictionary", "PLAIN"


def oracle_bytes(records: pd.DataFrame, about: Mapping[str, Any] | None = None) -> bytes:
    """Records of one operation as the parquet file of an oracle, sorted; the same rows and `about` give the
    same bytes (with the same version of pyarrow).

    about: JSON values for the footer. Raises RecordError for rows that are not records.
    """
    ordered = in_order(records)
    table = records_table(ordered).drop_columns(list(NOT_REPLAYED))
    if len(ordered):
        table = without_tflops(table, op_of(ordered["op"].unique()))
    # The whole file takes about as long as all trials of its columns.
    with wait("packing the records", 2.0 * table.num_columns) as done:
        chosen = {}
        for name in table.column_names:
            chosen[name] = _smallest(table.select([name]))
            done(1.0)
        return _file(with_about(table, about), chosen)


def _smallest(column: pa.Table) -> str:
    """Returns the encoding with the smallest result for a table of one column; ties go to the first."""
    (name,) = column.column_names
    return min(_encodings(column.schema.field(name).type), key=lambda one: len(_file(column, {name: one})))


def _encodings(type_: pa.DataType) -> tuple[str, ...]:
    import pyarrow as pa

    if pa.types.is_floating(type_):
        return (_DICTIONARY, _PLAIN, "BYTE_STREAM_SPLIT")
    if pa.types.is_integer(type_) or pa.types.is_timestamp(type_):
        return (_DICTIONARY, _PLAIN, "DELTA_BINARY_PACKED")
    return (_DICTIONARY,)


def _file(table: pa.Table, encodings: Mapping[str, str]) -> bytes:
    return table_bytes(
        table,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name, one in encodings.items() if one == _DICTIONARY],
        column_encoding={name: one for name, one in encodings.items() if one != _DICTIONARY},
        write_statistics=False,
    )
