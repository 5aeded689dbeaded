"""Use marks: which cache entries live sessions use, so that pruning never removes them.

Before a session reads an entry, it writes the entry's key to its own file below `use/`. The session holds a
lock on that file until it ends, even by a crash. Pruning holds `use/prune.lock` exclusively while it removes
entries; sessions hold it shared while they write a key. A session has therefore either written its key before
pruning reads the marks, or looks up the entry after it was removed.

A cache that is read-only, by its mode or otherwise, has no marks. Pruning such a cache relies on the times of
last use alone.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tile_oracle.files.locks import give, held, take

USE_FOLDER = "use"
GUARD = "prune.lock"
_SUFFIX = ".keys"
_ANYBODY_MAY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class UseMarks:
    """The marks of one session. Thread-safe. They last until `close`, or until this object or the process
    ends."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / USE_FOLDER
        self._keys: set[str] = set()
        self._guard: int | None = None
        self._file: int | None = None
        self._path: Path | None = None
        self._is_writable = True
        self._alone = threading.Lock()

    def mark(self, key: str) -> None:
        """Marks an entry as used by this session, whether or not it exists yet."""
        # One thread at a time: threads share the guard's lock, so one would release it while another writes.
        with self._alone:
            self._mark(key)

    def close(self) -> None:
        """Releases all marks of this session. Safe to call twice."""
        with self._alone:
            self._release()

    def _mark(self, key: str) -> None:
        if key in self._keys or not self._is_writable or not self._folder.parent.is_dir():
            return
        try:
            self._open()
            assert self._guard is not None
            assert self._file is not None
            take(self._guard, shared=True, wait=True)
            try:
                os.write(self._file, key.encode() + b"\n")
            finally:
                give(self._guard)
        except OSError:
            self._is_writable = False
        self._keys.add(key)

    def _open(self) -> None:
        if self._file is not None:
            return
        _check_writable(self._folder.parent)
        self._folder.mkdir(exist_ok=True)
        _check_writable(self._folder)
        if self._guard is None:
            self._guard = os.open(self._folder / GUARD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
        # Under the guard: pruning takes an unlocked file for a dead session's.
        take(self._guard, shared=True, wait=True)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            take(file)
        finally:
            give(self._guard)
        self._file, self._path = file, path

    def _release(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        for handle in (self._file, self._guard):
            if handle is not None:
                with suppress(OSError):
                    os.close(handle)
        self._guard = self._file = self._path = None
        self._keys.clear()

    def __del__(self) -> None:
        self._release()


@contextmanager
def nobody_begins(cache: Path) -> Iterator[frozenset[str]]:
    """Keeps sessions from marking further entries, and yields the keys that live sessions use.

    Removes the files of dead sessions. Raises OSError.
    """
    folder = cache / USE_FOLDER
    folder.mkdir(exist_ok=True)
    with held(folder / GUARD):
        living = (_keys_of_living(path) for path in folder.iterdir() if path.suffix == _SUFFIX)
        yield frozenset().union(*living)


def _check_writable(folder: Path) -> None:
    """Raises PermissionError for a folder whose mode makes it read-only, even for root."""
    if not folder.stat().st_mode & _ANYBODY_MAY_WRITE:
        raise PermissionError(f"{folder} is read-only")


def _keys_of_living(path: Path) -> set[str]:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not take(handle, shared=True):
            return set(path.read_text("ascii", "replace").split())
    finally:
        os.close(handle)
    path.unlink(missing_ok=True)
    return set()
