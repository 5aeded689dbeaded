"""Crash-safe recording: one journal per process, sealed into parquet parts that are complete or absent.

A finished measurement is one line with a checksum, passed to the operating system in a single write before
anything else happens; from then on, the death of a process cannot lose it. A thread flushes the journal to
disk at most half a second later, so a power cut loses at most the rows of the last second. After 1,000 rows
or 20 seconds, and at the end, the journal is sealed: its rows become a parquet part (written to a temporary
file, flushed, read back, renamed, folder flushed), and only then is the journal removed. A part is named
after its journal, so sealing twice makes the same file, not a second copy.

The owner of a journal holds a lock on it. An unlocked journal belongs to a dead process: `seal_abandoned`
turns it into a part. All readers call it, and so do resumed runs and the worker that outlives a killed
pytest. Only the lock's holder writes the part, so the temporary file has a fixed name, and what a killed
process left of it is overwritten.

Unreadable data is never treated as empty. A damaged line is moved to a file whose name begins with
`_damaged-`, which readers of parquet folders ignore; the other lines are kept.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.errors import RecordError, first_line
from tile_oracle.files.atomic_file import (
    make_folder,
    read_all,
    sync_folder,
    write_and_rename,
    write_atomically,
)
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.json_bytes import decode_json, encode_json
from tile_oracle.files.locks import take
from tile_oracle.files.user_file import read_regular
from tile_oracle.record.sealed_parquet import DamagedError, read_table, table_bytes

if TYPE_CHECKING:
    import pyarrow as pa


_CHECKSUM_BYTES = 8


def encode_line(row: Mapping[str, Any]) -> bytes:
    """Returns the line with its line break."""
    text = encode_json(row)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Parses a line without its line break; None for an invalid or damaged row."""
    text = line[_CHECKSUM_BYTES + 1 :]
    if line[: _CHECKSUM_BYTES + 1] != b"%08x " % zlib.crc32(text):
        return None
    row = _parsed(text)
    return row if isinstance(row, dict) else None


def _parsed(text: bytes) -> Any:
    """Returns the JSON value; None for a text that is not JSON."""
    with suppress(ValueError, RecursionError):
        return decode_json(text)
    return None


@dataclass(frozen=True)
class JournalLines:
    """The content of a journal. damaged: complete lines that are not rows. torn: the data after the last
    complete line."""

    rows: tuple[dict[str, Any], ...]
    damaged: tuple[bytes, ...]
    torn: bytes = b""


def decode_lines(data: bytes) -> JournalLines:
    """Parses the lines of a journal. An incomplete last line is not among the rows: it is
    being written, or its process died."""
    whole, _, torn = data.rpartition(b"\n")
    rows: list[dict[str, Any]] = []
    damaged: list[bytes] = []
    for line in whole.split(b"\n"):
        whole_row = decode_line(line) if line else None
        if whole_row is not None:
            rows.append(whole_row)
            continue
        for piece in _apart(line) if line else ():
            row = decode_line(piece)
            if row is None:
                damaged.append(piece)
            else:
                rows.append(row)
    return JournalLines(tuple(rows), tuple(damaged), torn)


def _apart(line: bytes) -> tuple[bytes, ...]:
    """Returns the damaged line, or the two lines that a damaged line break has joined."""
    text = line[_CHECKSUM_BYTES + 1 :].decode("latin-1")
    try:
        _, length = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return (line,)
    cut = _CHECKSUM_BYTES + 1 + length
    return (line,) if decode_line(line[:cut]) is None else (line[:cut], line[cut + 1 :])


JOURNAL_GLOB = ".journal-*.jsonl"
PART_GLOB = "part-*.parquet"
ASIDE_PREFIX = "_damaged-"
"""Prefix of the names of damaged files that were set aside."""

_SEAL_ROWS = 1000
_SEAL_SECONDS = 20.0
_SYNC_SECONDS = 0.5
"""Longest time that a row waits to be flushed to disk with later ones, in seconds."""
_IDLE_SECONDS = 5.0
"""Idle time after which the flushing thread ends, in seconds."""
_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EROFS}

_LOG = logging.getLogger("tile_oracle.record")


def tell_in_log(line: str) -> None:
    """A warning of the logger `tile_oracle.record`, which Python writes to stderr and sessions note."""
    _LOG.warning("%s", line)


class Journal:
    """Appends rows to a folder of parts. One per process; `writer` distinguishes processes."""

    def __init__(self, folder: Path, writer: str) -> None:
        self.folder = folder
        self._writer = writer
        self._sequence = 0
        self._fd: int | None = None
        self._path: Path | None = None
        self._rows = 0
        self._bytes = 0
        self._torn = False
        self._opened_at = 0.0
        self._flusher = _Flusher(folder)
        with disk_errors_as(RecordError, f"cannot record to {folder}", "choose another --report-dir"):
            make_folder(folder)

    def append(self, row: Mapping[str, Any]) -> None:
        """Appends one row durably. Raises RecordError if it cannot be written."""
        self.append_lines((encode_line(row),))

    def append_lines(self, lines: Sequence[bytes]) -> None:
        """Appends rows durably, in one write: all of them or none. lines: as `encode_line` makes them.

        Raises RecordError if they cannot be written.
        """
        if not lines:
            return
        if self._fd is None:
            self._open()
        assert self._fd is not None
        line = b"".join(lines)
        if self._torn:
            line = b"\n" + line  # separates it from a torn line that could not be removed
        with disk_errors_as(RecordError, f"cannot record to {self.folder}", "free space and --resume"):
            written = os.write(self._fd, line)
        if written != len(line):
            # Truncate, or the next row would be appended to the torn one and both be lost.
            self._torn = True
            with suppress(OSError):
                os.ftruncate(self._fd, self._bytes)
                self._torn = False
            raise RecordError(f"cannot record to {self.folder}: the disk is full; free space and --resume")
        self._torn = False
        self._bytes = os.lseek(self._fd, 0, os.SEEK_CUR)
        self._rows += len(lines)
        self._flusher.wake(self._fd)
        if self._rows >= _SEAL_ROWS or time.monotonic() - self._opened_at > _SEAL_SECONDS:
            self.seal()

    def seal(self) -> None:
        """Turns the rows appended so far into a parquet part.

        Raises RecordError if that fails; the journal is then kept, and nothing is lost.
        """
        if self._fd is None or self._path is None:
            return
        _seal(self._path, self._fd)
        self._flusher.let_go()
        os.close(self._fd)
        self._fd = self._path = None
        self._rows = 0

    def _open(self) -> None:
        with disk_errors_as(RecordError, f"cannot record to {self.folder}"):
            self._fd, self._path = self._made()
        self._bytes, self._torn, self._opened_at = 0, False, time.monotonic()

    def _made(self) -> tuple[int, Path]:
        """Returns a new journal, locked. Raises OSError."""
        while True:
            path = self.folder / f".journal-{self._writer}-{self._sequence:05d}.jsonl"
            self._sequence += 1
            if _part_of(path).exists():
                continue
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            except FileExistsError:
                continue
            try:
                take(fd, wait=True)
                if os.fstat(fd).st_nlink:
                    return fd, path
            except OSError:
                os.close(fd)
                raise
            # Before we held the lock, another process took the empty journal for abandoned and removed it.
            os.close(fd)


class _Flusher:
    """Flushes a journal in a thread, so that measurements do not wait for the disk.

    The thread lives while there are rows to flush. A failed flush is reported at the next row or seal.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = threading.Condition()
        self._fd: int | None = None
        self._is_named = False
        self._thread: threading.Thread | None = None
        self._at_disk = threading.Lock()
        self._failed = ""

    def wake(self, fd: int) -> None:
        """Wakes the thread for new rows. Raises RecordError if earlier ones could not be flushed."""
        if self._failed:
            failed, self._failed = self._failed, ""
            raise RecordError(
                f"cannot record to {self._folder}: flushing to disk failed ({failed}); "
                "the rows are in its journals: check the disk and --resume"
            )
        if self._fd is not None:
            return
        with self._state:
            self._fd = fd
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal to disk", daemon=True)
                self._thread.start()
            else:
                self._state.notify()

    def let_go(self) -> None:
        """Stops using the journal, which is about to be closed."""
        with self._at_disk, self._state:
            self._fd = None
            self._is_named = False
            self._failed = ""

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._state:
                if not self._state.wait_for(lambda: self._fd is not None, _IDLE_SECONDS):
                    self._thread = None
                    return
            pause.wait(_SYNC_SECONDS)
            with self._at_disk:
                with self._state:
                    # Later rows start a new thread.
                    fd, self._fd = self._fd, None
                if fd is not None:
                    self._flush(fd)

    def _flush(self, fd: int) -> None:
        try:
            os.fsync(fd)
            if not self._is_named:
                sync_folder(self._folder)
                self._is_named = True
        except OSError as error:
            self._failed = error.strerror or str(error)


def names_in(folder: Path, prefix: str, suffix: str) -> list[Path]:
    """Returns the files of a folder with this prefix and suffix, sorted; none if there is no such folder.

    Raises RecordError if the folder cannot be read, where Path.glob would find nothing.
    """
    with disk_errors_as(RecordError, f"{folder} cannot be read"):
        try:
            paths = sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [path for path in paths if path.name.startswith(prefix) and path.name.endswith(suffix)]


def journals_in(folder: Path) -> list[Path]:
    """Returns the journals of a folder, sorted. Raises RecordError."""
    return names_in(folder, *JOURNAL_GLOB.split("*"))


def parts_in(folder: Path) -> list[Path]:
    """Returns the parts of a folder, sorted. Raises RecordError."""
    return names_in(folder, *PART_GLOB.split("*"))


def seal_abandoned(folder: Path) -> int:
    """Seals the journals of dead processes into parts and returns their number. Safe at any time.

    A journal that cannot be sealed is kept and told; readers use its rows. Raises RecordError
    if the folder cannot be read.
    """
    sealed = 0
    for path in journals_in(folder):
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in _NOT_OURS:
                tell_in_log(f"{path} cannot be sealed: {error.strerror}; its rows are still in it")
            continue
        try:
            with disk_errors_as(RecordError, f"{path} cannot be locked", "its rows are still in it"):
                # Its owner lives, or another process sealed and removed it between open and lock.
                if take(fd) and os.fstat(fd).st_nlink:
                    _seal(path, fd)
                    sealed += 1
        except RecordError as error:
            tell_in_log(str(error))
        finally:
            os.close(fd)
    return sealed


def left_unsealed(folder: Path) -> list[Path]:
    """Returns the journals without a living owner. Raises RecordError."""
    return [path for path in journals_in(folder) if not _is_held(path)]


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not take(fd, shared=True)
    except OSError:
        return False
    finally:
        os.close(fd)


def read_journal(path: Path) -> JournalLines:
    """Returns the content of a journal; empty if another process has sealed it. Raises RecordError if it
    cannot be read."""
    with disk_errors_as(RecordError, f"{path} cannot be read", "its rows are still in it"):
        try:
            return decode_lines(read_regular(path))
        except FileNotFoundError:
            return JournalLines((), ())


def _part_of(journal: Path) -> Path:
    return journal.with_name(
        "part-" + journal.name.removeprefix(".journal-").removesuffix(".jsonl") + ".parquet"
    )


def _aside(part: Path) -> Path:
    return part.with_name(f".{part.name}.tmp")


def _seal(journal: Path, fd: int) -> None:
    """Seals one journal. The caller holds its lock through `fd`. Raises RecordError."""
    with disk_errors_as(RecordError, f"cannot read {journal}", "the rows are still in it"):
        lines = decode_lines(read_all(fd))
    rows = list(lines.rows)
    if (last := decode_line(lines.torn)) is not None:
        rows.append(last)  # only the line break is missing
    table, misfits = _table_and_misfits(rows)
    damaged = [*lines.damaged, *misfits]
    try:
        if damaged:
            _keep_damaged(journal, damaged)
        if table is not None:
            _add_to_part(_part_of(journal), table)
    except RecordError as error:
        raise RecordError(f"{error}; the rows are still in {journal}") from None
    with disk_errors_as(RecordError, f"cannot remove {journal}"):
        journal.unlink(missing_ok=True)


def _table_and_misfits(rows: Sequence[dict[str, Any]]) -> tuple[pa.Table | None, list[bytes]]:
    """Returns the rows as one table, and the lines of the rows that fit no record schema."""
    named = [row for row in rows if _is_named(row)]
    try:
        table = rows_table(named) if named else None
    except RecordError:
        named = [row for row in named if _fits_schema(row)]
        table = rows_table(named) if named else None
    kept = {id(row) for row in named}
    return table, [encode_line(row).rstrip(b"\n") for row in rows if id(row) not in kept]


def _is_named(row: Mapping[str, Any]) -> bool:
    return all(isinstance(row.get(name), str) for name in ("op", "problem", "kernel", "status"))


def _fits_schema(row: Mapping[str, Any]) -> bool:
    try:
        rows_table([row])
    except RecordError:
        return False
    return True


def _keep_damaged(journal: Path, damaged: Sequence[bytes]) -> None:
    kept = journal.with_name(ASIDE_PREFIX + journal.name.removeprefix(".journal-"))
    with disk_errors_as(RecordError, f"cannot write {kept}"):
        write_atomically(kept, b"".join(line + b"\n" for line in damaged))
    count = f"{len(damaged)} damaged line" + ("s" if len(damaged) > 1 else "")
    tell_in_log(f"{journal} had {count}, set aside as {kept.name}: --resume measures their pairs again")


def _add_to_part(part: Path, table: pa.Table) -> None:
    """Writes the part, or adds the rows to it: after a power cut, the journal of a sealed part may reappear,
    with fewer rows than the part."""
    import pyarrow as pa

    try:
        if part.exists():
            there = read_table(part)
            known = {_identity(row) for row in there.select(list(_IDENTITY)).to_pylist()}
            new = [row for row in table.to_pylist() if _identity(row) not in known]
            if not new:
                return
            added = pa.Table.from_pylist(new, schema=table.schema)
            table = pa.concat_tables([there, added], promote_options="default")
    except DamagedError as error:
        set_aside(part, str(error))
    except OSError as error:
        raise RecordError(f"cannot read {part}: {error.strerror}") from None
    _replace(part, table)


_IDENTITY = ("problem", "kernel", "round", "time")


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _IDENTITY)


def set_aside(path: Path, why: str) -> Path:
    """Renames a damaged file so that readers ignore it; returns the new path. Nothing is deleted.

    Raises RecordError if it cannot be renamed.
    """
    there, number = path.with_name(ASIDE_PREFIX + path.name), 1
    with disk_errors_as(RecordError, f"{why}; it cannot be set aside"):
        while there.exists():
            number += 1
            there = path.with_name(f"{ASIDE_PREFIX}{number}-{path.name}")
        path.rename(there)
        sync_folder(path.parent)
    tell_in_log(f"{why}: set aside as {there.name}; --resume measures its pairs again")
    return there


def set_damaged_aside(folder: Path) -> int:
    """Sets damaged parts of a folder aside and returns their number. Only for the owner of a run, which
    measures their pairs again. Raises RecordError if a part cannot be read at all, which is not damage."""
    found = 0
    for part in parts_in(folder):
        try:
            read_table(part, ("status",))
        except DamagedError as error:
            set_aside(part, str(error))
            found += 1
    return found


def forget_lost(folder: Path) -> int:
    """Removes device_lost rows from the parts and returns their number, for a run that measures them again.

    Raises RecordError if a part cannot be read or rewritten.
    """
    with disk_errors_as(RecordError, f"{folder} cannot be locked"):
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return 0
        try:
            # Only one session at a time may rewrite the parts of a run.
            take(fd, wait=True)
            return sum(_forget_lost_in(part) for part in parts_in(folder))
        finally:
            os.close(fd)


def _forget_lost_in(part: Path) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        table = read_table(part)
        status = table.column("status")
        lost = int(pc.sum(pc.equal(status, "device_lost")).as_py() or 0)
        if lost:
            _replace(part, table.filter(pc.not_equal(status, "device_lost")))
    except (RecordError, KeyError, pa.ArrowException) as error:
        raise RecordError(f"{part} cannot be rewritten: {first_line(error)}; start a new run") from None
    return lost


def rows_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of one operation as a table of its record schema. Raises RecordError for an invalid row."""
    import pyarrow as pa

    from tile_oracle.record.schema import arrow_schema, later_columns

    listed = [dict(row) for row in rows]
    op = str(listed[0].get("op"))
    later = later_columns(op)
    try:
        for row in listed:
            row |= {name: value for name, value in later.items() if name not in row}
            if isinstance(row.get("time"), str):
                row["time"] = datetime.fromisoformat(row["time"])
        return pa.Table.from_pylist(listed, schema=arrow_schema(op))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"a measurement does not fit the record schema: {first_line(error)}") from None


def write_part(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows of one operation as a parquet file (zstd), atomically. Raises RecordError."""
    _replace(path, rows_table(rows))


def _replace(path: Path, table: pa.Table) -> None:
    """Writes a part; on return its content and name are on disk."""
    import pyarrow as pa

    try:
        write_and_rename(_aside(path), path, table_bytes(table, compression="zstd"))
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise RecordError(f"cannot write {path}: {reason}") from None
