"""Lock files for devices. A process holds a lock while it uses the device; others wait for it.

They are in one folder, the first of these that exists:

    $TILE_ORACLE_LOCK_DIR         if set; created with access for its owner only if missing
    /run/tile-oracle              if the administrator created it, for all users:
                                  install -d -m 1777 /run/tile-oracle
    $XDG_RUNTIME_DIR/tile-oracle  or /run/user/UID/tile-oracle: private to the user
    TMPDIR/tile-oracle-UID        private to the user

Users exclude each other only if they share a folder, which is one of the first two. A shared folder is used
if root or this user owns it and nobody else can replace files in it (no write access, or the sticky bit is
set). A private folder is used if nobody else has access. Symbolic links are not followed, neither to the
folder nor to lock files, and only modes of files created here are changed. Lock files are opened read-only
and never written, so a file of another user can only be locked.
"""

from __future__ import annotations

import os
import stat
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.files.locks import take
from tile_oracle.files.passing_errors import unless_passing
from tile_oracle.files.trusted_folder import may_change

LOCK_DIR_VARIABLE = "TILE_ORACLE_LOCK_DIR"
SHARED_FOLDER = Path("/run/tile-oracle")

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class _Place:
    """A candidate folder. private: nobody else may have access. make: create the folder if it is missing."""

    path: Path
    private: bool
    make: bool


class LockFolder:
    """An open folder of lock files. All operations use its descriptor, so that replacing the path, for
    example by a link, has no effect."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        self._identity = _identity(handle)
        self._closed = weakref.finalize(self, _close, handle, self._identity)

    def open(self, name: str) -> int | None:
        """Opens a lock file read-only, which suffices to lock it even when another user created it.

        None when it cannot be created or is not a regular file. Raises OSError for failures that pass: they
        do not mean that nobody needs to wait.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        for extra in (0, os.O_CREAT | os.O_EXCL, 0):  # open it; create it; another process just created it
            with unless_passing():
                if _identity(self._handle) != self._identity:
                    return None  # this process closed the descriptor, and its number was reused
                handle = os.open(name, flags | extra, 0o644, dir_fd=self._handle)
                if extra:
                    os.fchmod(handle, 0o644)  # others must be able to open it, whatever the umask is
                elif not stat.S_ISREG(os.fstat(handle).st_mode):
                    os.close(handle)
                    return None
                return handle
        return None

    def locked(self, name: str) -> int | None:
        """Opens a lock file with an exclusive lock, held until it is closed; None when it cannot be
        locked."""
        handle = self.open(name)
        if handle is not None:
            with suppress(OSError):
                if take(handle):
                    return handle
            os.close(handle)
        return None

    def somebody_holds(self, name: str) -> bool:
        """Returns whether another process holds a lock on the file, exclusive or shared."""
        handle = self.open(name)
        if handle is None:
            return False
        try:
            return not take(handle)
        except OSError:
            return True
        finally:
            os.close(handle)


def lock_folder(environment: Mapping[str, str] = os.environ) -> LockFolder | None:
    """Returns the folder of this user's lock files; None when no folder is safe.

    If the folder named by the variable is not safe, no other one is used: its users would silently no longer
    exclude each other. Raises OSError for failures that pass.
    """
    for place in _places(environment):
        with unless_passing():
            handle = _opened(place)
            if handle is not None:
                return LockFolder(place.path, handle)
        if environment.get(LOCK_DIR_VARIABLE):
            return None
    return None


def describe_lock_folder(environment: Mapping[str, str] = os.environ) -> str:
    """Returns one line for users: where the locks are and who shares them, or why there are none."""
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
    """Opens the folder; None when it is not safe. Raises OSError when it cannot be opened or created."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    path = place.path.absolute()
    parent = os.open(path.parent, flags)
    try:
        above = Path(os.path.realpath(path.parent), path.name).parents
        if any(may_change(one.stat(), only_add=True) for one in above):
            return None  # others could replace the folder at any time
        if place.make:
            with suppress(FileExistsError):
                os.mkdir(path.name, 0o700, dir_fd=parent)
        handle = os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)
    found = os.fstat(handle)
    if place.private and found.st_uid == os.getuid() and found.st_mode & _OTHERS == 0:
        return handle
    if not place.private and not may_change(found, only_add=True):
        return handle
    os.close(handle)
    return None


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _close(handle: int, identity: tuple[int, int]) -> None:
    with suppress(OSError):
        if _identity(handle) == identity:
            os.close(handle)
