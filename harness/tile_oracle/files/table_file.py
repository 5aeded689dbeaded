"""Tables from outside. Their size is checked before memory is used for their cells.

A parquet file of 4 MB can hold 10^8 equal rows, and a line of a CSV file a million columns. What is refused
raises TableError, whose text follows a file's name in a message.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tile_oracle.files.user_file import no_text, read_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MOST_ROWS = 20_000_000
MOST_COLUMNS = 4_096
MOST_CELLS = 500_000_000
"""Cells that are read at a time: some 4 GB."""
MOST_CSV_BYTES = 1 << 30


class TableError(OSError, ValueError):
    """A table is too large, or holds what is neither numbers nor text."""


def open_parquet(
    source: BinaryIO | pa.NativeFile,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> pq.ParquetFile:
    """Open a parquet file, of which these columns, or all, will be read.

    options: of pyarrow.parquet.ParquetFile.

    Raises TableError, OSError, or pyarrow.ArrowException for a file that is not parquet.
    """
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(source, **options)
    rows, width = opened.metadata.num_rows, opened.metadata.num_columns
    if width > MOST_COLUMNS:
        raise TableError(f"it has {width:,} columns, more than {MOST_COLUMNS:,}")
    fields = [field for field in opened.schema_arrow if columns is None or field.name in columns]
    if rows > MOST_ROWS or rows * len(fields) > MOST_CELLS:
        most = min(MOST_ROWS, MOST_CELLS // max(len(fields), 1))
        raise TableError(f"it has {rows:,} rows, more than {most:,} of {len(fields)} columns: split it")
    for field in fields:
        if fields.count(field) > 1:
            raise TableError(f"it has more than one column {field.name!r}")
        if not _is_flat(field.type):
            raise TableError(f"its column {field.name!r} holds {field.type}, neither numbers nor text")
    return opened


def read_parquet(
    source: BinaryIO | pa.NativeFile,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> pa.Table:
    """Read the table in a parquet file, or those of these columns that exist. options: as for `open_parquet`,
    which says what is raised."""
    with open_parquet(source, columns, **options) as opened:
        return opened.read(columns=None if columns is None else list(columns))


def csv_text(path: Path) -> str:
    """Returns the text of a CSV file in UTF-8. Raises TableError, OSError, or UnicodeDecodeError."""
    data = read_bytes(path, MOST_CSV_BYTES)
    if what := no_text(data):
        raise TableError(f"it is {what}")
    text = data.decode("utf-8-sig")
    check_csv(text)
    return text


def check_csv(text: str) -> list[str]:
    """Returns the header row. Raises TableError, which names the line, for columns that are apart by other
    than commas, more columns than a table of ours has, or rows with other than the header row's number of
    cells."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if (width := line.count(",") + 1) > MOST_COLUMNS:
            raise TableError(f"line {number} has {width:,} columns, more than {MOST_COLUMNS:,}")
    reader = csv.reader(io.StringIO(text, newline=None), strict=True)
    rows = filter(None, reader)
    try:
        header = next(rows, [])
        if not header:
            raise TableError("it is empty")
        if what := one_column(header):
            raise TableError(f"line {reader.line_num}: {what}")
        for cells in rows:
            if len(cells) != len(header):
                raise TableError(f"line {reader.line_num} has {len(cells)} cells, not {len(header)}: mend it")
    except csv.Error as error:
        raise TableError(f"line {reader.line_num} is not CSV: {error}") from None
    return header


def one_column(header: Sequence[str]) -> str:
    """Returns what is wrong with a header row whose names are apart by other than commas; "" otherwise."""
    apart = [re.split(r"[\s;|]+", name) for name in header]
    if len(apart) != 1 or len(apart[0]) < 2:
        return ""
    return f"{header[0][:40]!r} is one column: write commas, {','.join(apart[0])[:40]}"


def _is_flat(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_flat(kind.value_type)
    of_bytes = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    )
    return not (pa.types.is_nested(kind) or any(one(kind) for one in of_bytes))
