"""Atomic, durable file writes: after a crash or a power cut a file is complete or absent."""

from __future__ import annotations

import errno
import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tile_oracle.errors import HarnessError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.locks import take

_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
"""Error numbers of file systems that cannot flush a folder."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file's content with `data` atomically. On return the content and the name are on disk.
    Raises OSError."""
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name[:64]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    write_and_rename(temporary, path, data)


def _remove_leftovers(path: Path) -> None:
    """Removes temporary files of this file that killed writers left behind.

    A temporary file whose process is alive, or whose lock is held (by another machine), is still in use.
    """
    name = re.compile(re.escape(f".{path.name[:64]}.") + r"([0-9]+)\.[0-9a-f]{8}\.tmp")
    with suppress(OSError):
        for place in path.parent.iterdir():
            if (found := name.fullmatch(place.name)) and not Path(f"/proc/{found[1]}").exists():
                with suppress(OSError), place.open("rb") as file:
                    if take(file.fileno()):
                        place.unlink()


def write_and_rename(aside: Path, path: Path, data: bytes) -> None:
    """Like `write_atomically`, with `aside`, in the same folder, as the temporary file, which is overwritten.
    The data is read back before the rename. Raises OSError."""
    try:
        handle = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # not every file system has locks
                take(handle)
            _write_all(handle, data)
            os.fsync(handle)
            if read_all(handle) != data:
                raise OSError(errno.EIO, "the data read back differs from the data written", str(aside))
        finally:
            os.close(handle)
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_all(handle: int) -> bytes:
    """Returns all bytes of an open file, from its beginning. Raises OSError."""
    pieces: list[bytes] = []
    size = 0
    while piece := os.pread(handle, 1 << 22, size):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def make_folder(folder: Path) -> None:
    """Makes a folder and its parents. On return their names are on disk. Raises OSError."""
    missing = []
    place = folder
    while not place.is_dir():
        missing.append(place)
        if place.parent == place:
            break
        place = place.parent
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir()
        if not one.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(one))
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Flushes a folder's entries (created, renamed and removed files) to disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def refuse_unwritable(places: Iterable[str | Path]) -> None:
    """Raises HarnessError for the first of these paths that no file or folder can be written to. Folders
    above it are made; standard output (-) and devices are left alone."""
    for place in places:
        special = Path(place).exists() and not (Path(place).is_file() or Path(place).is_dir())
        if special or str(place) in ("", "-"):
            continue
        with disk_errors_as(HarnessError, f"cannot write {place}"):
            above = Path(place).absolute().parent
            above.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=above):
                pass
