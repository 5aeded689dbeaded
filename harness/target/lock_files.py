"""Lock files that every user of the machine shares: made once, opened by all, locked by who works."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def make_lock_folder(folder: Path) -> bool:
    """Whether the folder is there now, made for everybody, and no link to somewhere else."""
    try:
        folder.mkdir(mode=0o777, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o1777)
    except OSError:
        return False
    return not folder.is_symlink()


def open_lock_file(path: Path) -> int | None:
    """The lock file, for reading only: that is enough to lock it, and another user may have made it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    for extra in (0, os.O_CREAT | os.O_EXCL, 0):  # there already, made now, made by another meanwhile
        with suppress(OSError):
            fd = os.open(path, flags | extra, 0o644)
            if extra:
                os.fchmod(fd, 0o644)  # whatever the umask: others must be able to open it
            return fd
    return None


def locked(path: Path, *, block: bool) -> int | None:
    """The lock file, locked for this process alone until it is closed; None where that cannot be."""
    fd = open_lock_file(path)
    if fd is None:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
    except OSError:
        os.close(fd)
        return None
    return fd


def somebody_holds(path: Path) -> bool:
    """Whether another process has a lock on the file, a shared one included."""
    fd = open_lock_file(path)
    if fd is None:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
