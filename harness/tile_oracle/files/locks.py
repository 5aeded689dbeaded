"""Locks on open files (flock). The system releases those of a process that dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def take(handle: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Locks an open file until it is closed; whether nobody else holds it. shared: others may hold it, too.
    wait: until it is free. Raises OSError where the file system has no locks."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Locks a file, which is made if it is missing, within the block. Yields whether it was free.
    Raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        yield take(handle, wait=wait)
    finally:
        os.close(handle)
