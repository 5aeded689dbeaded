"""Parquet files that carry a digest of all their bytes.

Parquet's page checksums cover neither the footer nor the page headers, so a flipped bit there can change what
is read without an error. A file written here has 88 bytes between its last page and its footer: a mark and
the BLAKE2b-256 of everything else. Parquet finds pages by offset and the footer from the end, so every reader
ignores these bytes, and a program that rewrites the table drops them.

`read_table` reads a file once, compares the digest, and parses the same bytes. A file without a mark was
written by another program: only its page checksums, if any, are verified.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import RecordError, first_line
from tile_oracle.files.table_file import TableError, read_parquet
from tile_oracle.files.user_file import read_regular
from tile_oracle.process.arrow_memory import give_back

if TYPE_CHECKING:
    import pyarrow as pa

_FOREIGN = (".csv", ".json", ".log", ".txt")
_MARK = b"\ntile-oracle BLAKE2b-256\n"
_HEX_BYTES = 64
_FOOTER_END = 8
"""Bytes after the footer: its length and "PAR1"."""


class DamagedError(RecordError):
    """A file's content differs from what was written."""


def table_bytes(table: pa.Table, **options: Any) -> bytes:
    """Returns the table as a parquet file with page checksums and a digest. `options`: passed to
    pyarrow.parquet.ParquetWriter. Equal tables give equal bytes."""
    return bytes_of_tables((table,), **options)


def bytes_of_tables(tables: Iterable[pa.Table], **options: Any) -> bytes:
    """`table_bytes` of tables with one schema, each of which becomes a row group: they need not be there
    at the same time."""
    import pyarrow.parquet as pq

    buffer, rest = io.BytesIO(), iter(tables)
    first = next(rest)
    with pq.ParquetWriter(buffer, first.schema, write_page_checksum=True, **options) as writer:
        writer.write_table(first)
        for table in rest:
            writer.write_table(table)
    give_back()
    return _sealed(buffer.getbuffer())


def _sealed(plain: memoryview) -> bytes:
    """Returns a parquet file with its digest."""
    footer_bytes = int.from_bytes(plain[-_FOOTER_END : 4 - _FOOTER_END], "little")
    cut = len(plain) - _FOOTER_END - footer_bytes
    return b"".join((plain[:cut], _MARK, _digest(plain).encode(), plain[cut:]))


def read_table(
    path: Path,
    columns: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
) -> pa.Table:
    """Returns the table in a file, or some of its columns (those that exist). texts: the columns of text that
    are read as such; the others become dictionary arrays. None: all.

    Raises RecordError if the file cannot be read, DamagedError if its content is not what was written or is
    not parquet.
    """
    import pyarrow as pa

    data = checked_bytes(path)
    try:
        return read_parquet(
            pa.BufferReader(data),
            columns,
            read_dictionary=[] if texts is None else _other_texts(data, texts),
            page_checksum_verification=True,
        )
    except TableError as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    except (OSError, pa.ArrowException) as error:
        if path.suffix.lower() in _FOREIGN:
            made = "`tile-oracle runs import FILE --arch ARCH -o OUT.parquet` makes records of it"
            raise RecordError(f"{path} is no parquet file: {made}") from None
        raise DamagedError(f"{path} is not a readable parquet file: {first_line(error)}") from None


def _other_texts(data: bytes, texts: Sequence[str]) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(pa.BufferReader(data))
    return [field.name for field in schema if field.type == pa.string() and field.name not in texts]


def checked_bytes(path: Path) -> bytes:
    """Returns the bytes of a file; a digest is compared if there is one. Raises as `read_table` does."""
    try:
        data = read_regular(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RecordError(f"{path} cannot be read: {reason}") from None
    if not data:
        raise DamagedError(f"{path} is not a readable parquet file: it is empty")
    begin = data.rfind(_MARK)
    if begin >= 0:
        end = begin + len(_MARK) + _HEX_BYTES
        if data[begin + len(_MARK) : end] != _digest(data[:begin], data[end:]).encode():
            raise DamagedError(
                f"{path} is not a readable parquet file: it is damaged (it does not match its digest)"
            )
    return data


def _digest(*pieces: bytes | memoryview) -> str:
    digest = hashlib.blake2b(digest_size=_HEX_BYTES // 2)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
