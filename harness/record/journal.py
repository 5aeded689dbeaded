"""Crash-safe recording: a journal a process, sealed into parquet parts that are complete or absent.

A finished measurement is one line, handed to the operating system in one write before anything else
happens: from then on no death of any process loses it. Every few hundred rows, and at the end, the
journal is sealed: its rows become a parquet part (written aside, then renamed) and the journal goes.
A part is named after its journal, so sealing twice makes the same file, never a second copy.

The owner of a journal holds a lock on it. A journal that nobody holds belongs to a dead process:
`seal_abandoned` turns it into a part, and any reader, a resumed run and the worker that outlives a
killed pytest call it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.errors import RecordError

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
            raise RecordError(f"cannot record to {self.folder}: the disk is full; free space and --resume")
        self._rows += 1
        if self._rows >= _SEAL_ROWS or time.monotonic() - self._opened_at > _SEAL_SECONDS:
            self.seal()

    def seal(self) -> None:
        """Turn what was appended so far into a parquet part."""
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
            self._fd, self._path, self._opened_at = fd, path, time.monotonic()
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
        except OSError:
            continue  # held by a living owner, or the folder cannot be written: it stays as it is
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


def _seal(journal: Path) -> None:
    rows, _ = read_lines(journal)
    if rows:
        write_part(_part_of(journal), rows)
    journal.unlink(missing_ok=True)


def write_part(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of one operation as a parquet file (zstd), complete or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from harness.record.schema import arrow_schema

    listed = [dict(row) for row in rows]
    for row in listed:
        if isinstance(row.get("time"), str):
            row["time"] = datetime.fromisoformat(row["time"])
    schema = arrow_schema(str(listed[0]["op"]))
    table = pa.Table.from_pylist(listed, schema=schema)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(table, aside, compression="zstd")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from None
