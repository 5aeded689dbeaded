"""Crash-safe recording: a journal a process, sealed into parquet parts that are complete or absent.

A finished measurement is one line, handed to the operating system in one write before anything else
happens: from then on no death of any process loses it. Every few hundred rows, and at the end, the
journal is sealed: its rows become a parquet part (written aside, then renamed) and the journal goes.
A part is named after its journal, so sealing twice makes the same file, never a second copy.

The owner of a journal holds a lock on it. A journal that nobody holds belongs to a dead process:
`seal_abandoned` turns it into a part, and any reader, a resumed run and the worker that outlives a
killed pytest call it. Only who holds a journal's lock writes its part, so the file aside needs no name
of its own: what a killed sealer left of it, the next one overwrites.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import RecordError

if TYPE_CHECKING:
    import pyarrow as pa

JOURNAL_GLOB = ".journal-*.jsonl"
PART_GLOB = "part-*.parquet"

_SEAL_ROWS = 1000
_SEAL_SECONDS = 20.0


class Journal:
    """Appends rows to a folder of parts. One a process; `writer` tells processes apart."""

    def __init__(self, folder: Path, writer: str) -> None:
        self.folder = folder
        self._writer = writer
        self._sequence = 0
        self._fd: int | None = None
        self._path: Path | None = None
        self._rows = 0
        self._bytes = 0
        self._opened_at = 0.0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(
                f"cannot record to {folder}: {error.strerror}; choose another --report-dir"
            ) from None

    def append(self, row: Mapping[str, Any]) -> None:
        """Make one row permanent. Raises RecordError when the disk refuses it."""
        if self._fd is None:
            self._open()
        assert self._fd is not None
        line = json.dumps(row, separators=(",", ":"), allow_nan=True).encode() + b"\n"
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            raise RecordError(
                f"cannot record to {self.folder}: {error.strerror}; free space and --resume"
            ) from None
        if written != len(line):
            # Taken back, or the next row would be glued to the torn one and both be lost.
            with suppress(OSError):
                os.ftruncate(self._fd, self._bytes)
            raise RecordError(f"cannot record to {self.folder}: the disk is full; free space and --resume")
        self._bytes += written
        self._rows += 1
        if self._rows >= _SEAL_ROWS or time.monotonic() - self._opened_at > _SEAL_SECONDS:
            self.seal()

    def seal(self) -> None:
        """Turn what was appended so far into a parquet part.

        Raises RecordError when that cannot be written; the journal stays then, and nothing is lost.
        """
        if self._fd is None or self._path is None:
            return
        _seal(self._path)
        os.close(self._fd)
        self._fd = self._path = None
        self._rows = 0

    def _open(self) -> None:
        while True:
            path = self.folder / f".journal-{self._writer}-{self._sequence:05d}.jsonl"
            self._sequence += 1
            if _part_of(path).exists():
                continue
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                continue
            except OSError as error:
                raise RecordError(f"cannot record to {self.folder}: {error.strerror}") from None
            fcntl.flock(fd, fcntl.LOCK_EX)
            if not os.fstat(fd).st_nlink:
                # Before we had the lock, someone took the empty journal for a dead process's and removed it.
                os.close(fd)
                continue
            self._fd, self._path, self._bytes, self._opened_at = fd, path, 0, time.monotonic()
            return


def seal_abandoned(folder: Path) -> int:
    """Seal the journals of dead processes into parts; returns how many. Safe to call at any time."""
    sealed = 0
    for path in sorted(folder.glob(JOURNAL_GLOB)):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between open and lock another process may have sealed and removed it.
            if os.fstat(fd).st_nlink:
                _seal(path)
                sealed += 1
        except (OSError, RecordError):
            continue  # held by a living owner, or the part cannot be written: it stays as it is
        finally:
            os.close(fd)
    return sealed


def read_lines(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The whole rows of a journal from a byte offset on, and the offset after them.

    A last line without its end was being written when its process died: it is not a row.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError:
        return [], offset
    end = data.rfind(b"\n") + 1
    return list(_parse(data[:end])), offset + end


def _parse(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # torn by a full disk: the row was never acknowledged
        if isinstance(row, dict):
            yield row


def _part_of(journal: Path) -> Path:
    return journal.with_name(
        "part-" + journal.name.removeprefix(".journal-").removesuffix(".jsonl") + ".parquet"
    )


def _aside(part: Path) -> Path:
    return part.with_name(f".{part.name}.tmp")


def _seal(journal: Path) -> None:
    """The caller holds the journal's lock."""
    rows, _ = read_lines(journal)
    if rows:
        part = _part_of(journal)
        _write(part, _aside(part), rows)
    try:
        journal.unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"cannot remove {journal}: {error.strerror}") from None


def forget_lost(folder: Path) -> int:
    """Take the rows `device_lost` out of the parts; returns how many. For a run that measures them anew.

    Raises RecordError when a part cannot be read or rewritten.
    """
    if not folder.is_dir():
        return 0
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Two sessions that resume one run rewrite its parts one after the other.
        fcntl.flock(fd, fcntl.LOCK_EX)
        return sum(_forget_lost_in(part) for part in sorted(folder.glob(PART_GLOB)))
    finally:
        os.close(fd)


def _forget_lost_in(part: Path) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        status = pq.read_table(part, columns=["status"], partitioning=None).column("status")
        lost = int(pc.sum(pc.equal(status, "device_lost")).as_py() or 0)
        if lost:
            table = pq.read_table(part, partitioning=None)
            kept = table.filter(pc.not_equal(table.column("status"), "device_lost"))
            _replace(part, _aside(part), kept)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise RecordError(f"{part} cannot be rewritten: {first_line(error)}; start a new run") from None
    return lost


def rows_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of one operation as a table of its record schema. Raises RecordError for what is no row."""
    import pyarrow as pa

    from harness.record.schema import arrow_schema

    listed = [dict(row) for row in rows]
    try:
        for row in listed:
            if isinstance(row.get("time"), str):
                row["time"] = datetime.fromisoformat(row["time"])
        return pa.Table.from_pylist(listed, schema=arrow_schema(str(listed[0].get("op"))))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"a measurement does not fit the record schema: {first_line(error)}") from None


def write_part(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of one operation as a parquet file (zstd), complete or not at all. Raises RecordError."""
    _write(path, path.with_name(f".{path.name}.{os.getpid()}.tmp"), rows)


def _write(path: Path, aside: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    table = rows_table(rows)
    try:
        _replace(path, aside, table)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from None


def _replace(path: Path, aside: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    try:
        pq.write_table(table, aside, compression="zstd")
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def first_line(error: Exception) -> str:
    """What an error says, as messages show it: PyArrow's run over many lines."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
