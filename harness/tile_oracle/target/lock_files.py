"""Lock files: who works holds a lock on one, and whoever else would work waits for it.

They lie in one folder, the first of these that is there:

    $TILE_ORACLE_LOCK_DIR         where somebody chose it; made, for its owner alone, where it is missing
    /run/tile-oracle              where the machine's administrator made it, for all users:
                                  install -d -m 1777 /run/tile-oracle
    $XDG_RUNTIME_DIR/tile-oracle  else /run/user/UID/tile-oracle: the user's own
    TMPDIR/tile-oracle-UID        the user's own

Users exclude each other only where they share a folder, that is one of the first two. A folder is used when
it belongs to root or to this user and nobody else may replace the files in it (nobody else may write there,
or the sticky bit is set); the user's own, when nobody else may enter it. Links are not followed, neither to
the folder nor to a lock file, and modes are changed of nothing but what was made here. Lock files are opened
for reading only and never written, so a foreign one can do no more than be locked.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOCK_DIR_VARIABLE = "TILE_ORACLE_LOCK_DIR"
SHARED_FOLDER = Path("/run/tile-oracle")

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class _Place:
    """Where a folder may be. `private`: nobody else may enter it; `make`: it is made where it is missing."""

    path: Path
    private: bool
    make: bool


class LockFolder:
    """An open folder of lock files. All is done by its descriptor: what happens to the path meanwhile, a link
    in its place included, changes nothing."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        self._identity = _identity(handle)
        self._closed = weakref.finalize(self, _close, handle, self._identity)

    def open(self, name: str) -> int | None:
        """A lock file, for reading only: that is enough to lock it, and another user may have made it.

        None where it cannot be made or is no regular file.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        for extra in (0, os.O_CREAT | os.O_EXCL, 0):  # there already, made now, made by another meanwhile
            with suppress(OSError):
                if _identity(self._handle) != self._identity:
                    return None  # somebody in this process closed the descriptor, and it is another one now
                handle = os.open(name, flags | extra, 0o644, dir_fd=self._handle)
                if extra:
                    os.fchmod(handle, 0o644)  # whatever the umask: others must be able to open it
                elif not stat.S_ISREG(os.fstat(handle).st_mode):
                    os.close(handle)
                    return None
                return handle
        return None

    def locked(self, name: str, *, block: bool) -> int | None:
        """A lock file, locked for this process alone until it is closed; None where that cannot be."""
        handle = self.open(name)
        if handle is None:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
        except OSError:
            os.close(handle)
            return None
        return handle

    def somebody_holds(self, name: str) -> bool:
        """Whether another process has a lock on the file, a shared one included."""
        handle = self.open(name)
        if handle is None:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False


def lock_folder(environment: Mapping[str, str] = os.environ) -> LockFolder | None:
    """The folder that this user's lock files are in; None where there is none that is safe.

    A folder that was chosen by the variable and is not safe is not replaced by another one: its users would
    no longer exclude each other, and nobody would know.
    """
    for place in _places(environment):
        with suppress(OSError):
            handle = _opened(place)
            if handle is not None:
                return LockFolder(place.path, handle)
        if environment.get(LOCK_DIR_VARIABLE):
            return None
    return None


def describe_lock_folder(environment: Mapping[str, str] = os.environ) -> str:
    """One line for people: where the locks are and who shares them, or why there are none."""
    folder = lock_folder(environment)
    if folder is not None:
        shared = not any(place.path == folder.path and place.private for place in _places(environment))
        who = "shared by the users of that folder" if shared else "this user's own; others do not wait for it"
        return f"{folder.path} ({who})"
    chosen = environment.get(LOCK_DIR_VARIABLE)
    where = f"{LOCK_DIR_VARIABLE}={chosen}" if chosen else str(_own_temporary())
    return (
        f"none: {where} is not a folder of this user or of root that only its owner can change "
        "(mode 0700, or 1777 with the sticky bit); sessions do not wait for each other"
    )


def _places(environment: Mapping[str, str]) -> Iterator[_Place]:
    chosen = environment.get(LOCK_DIR_VARIABLE)
    if chosen:
        yield _Place(Path(chosen), private=False, make=True)
        return
    yield _Place(SHARED_FOLDER, private=False, make=False)
    for base in (environment.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
        if base and Path(base).is_absolute():
            yield _Place(Path(base) / "tile-oracle", private=True, make=True)
    yield _Place(_own_temporary(), private=True, make=True)


def _own_temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"tile-oracle-{os.getuid()}"


def _opened(place: _Place) -> int | None:
    """The folder's descriptor, None where it is not safe. Raises OSError where it cannot be had."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    path = place.path.absolute()
    parent = os.open(path.parent, flags)
    try:
        if not _is_safe(os.fstat(parent)):
            return None  # others can put another folder in its place between any two looks
        if place.make:
            with suppress(FileExistsError):
                os.mkdir(path.name, 0o700, dir_fd=parent)
        handle = os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)
    found = os.fstat(handle)
    if place.private and found.st_uid == os.getuid() and found.st_mode & _OTHERS == 0:
        return handle
    if not place.private and _is_safe(found):
        return handle
    os.close(handle)
    return None


def _is_safe(found: os.stat_result) -> bool:
    """Whether nobody but root and this user can remove or replace another's entries of the folder."""
    trusted = found.st_uid in (0, os.getuid())
    return trusted and (not found.st_mode & _OTHERS_MAY_WRITE or bool(found.st_mode & stat.S_ISVTX))


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _close(handle: int, identity: tuple[int, int]) -> None:
    with suppress(OSError):
        if _identity(handle) == identity:
            os.close(handle)
