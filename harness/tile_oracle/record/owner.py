"""Ownership of a run: only one session and its workers may write to it.

The session that opens a run locks the run's folder for as long as it lives; the operating system releases the
lock of a process that dies. Workers of pytest-xdist belong to their controller: each takes a shared lock on
the run's manifest and then checks that its controller is still alive. A session that takes over from a dead
one waits for those locks, so no orphaned worker writes at the same time.

Locks belong to a process: opening a run twice in one process makes one owner.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

from tile_oracle.errors import RecordError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.locks import take

_LONGEST_WAIT_S = 30.0
_POLL_S = 0.02


class RunLock:
    """A lock on a run, until `release` or the end of this process."""

    def __init__(self, handle: int) -> None:
        self._close = weakref.finalize(self, os.close, handle)

    def release(self) -> None:
        """Releases the run."""
        self._close()


_owned: weakref.WeakValueDictionary[tuple[int, int], RunLock] = weakref.WeakValueDictionary()


def own(folder: Path, manifest: str) -> RunLock:
    """Makes this process the run's owner, after the workers of a dead owner have ended.

    Raises RecordError while another process owns it.
    """
    handle = _opened(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        place = os.fstat(handle)
        key = (place.st_dev, place.st_ino)
        held = _owned.get(key)
        if held is not None and held._close.alive:
            os.close(handle)
            return held
        if not _locked(handle, folder):
            raise RecordError(
                f"{folder} is in use by another session{_whose(key[1])}: wait until it ends, "
                "or choose another --run-name"
            )
        _wait_for_workers(folder / manifest)
    except BaseException:
        with suppress(OSError):
            os.close(handle)
        raise
    lock = RunLock(handle)
    _owned[key] = lock
    return lock


def name_of_owner() -> str:
    """Identifies this process, so that its workers can tell whether it is alive."""
    return f"{boot()} {os.getpid()} {_start_of(os.getpid())}"


def join(folder: Path, manifest: str, owner: str) -> RunLock:
    """Makes this process a worker of the run's owner (see `name_of_owner`).

    Raises RecordError if the owner has ended.
    """
    handle = _opened(folder / manifest, os.O_RDONLY)
    try:
        # Held only briefly, while a session that takes over checks the run.
        if not _locked(handle, folder, _LONGEST_WAIT_S, shared=True) or not _lives(owner):
            raise RecordError(f"the session that owns {folder} has ended: continue it with --resume")
    except BaseException:
        os.close(handle)
        raise
    return RunLock(handle)


def _opened(path: Path, how: int) -> int:
    with disk_errors_as(RecordError, f"{path} cannot be opened"):
        return os.open(path, how | os.O_NONBLOCK)


def _wait_for_workers(manifest: Path) -> None:
    if not manifest.exists():
        return  # a run that is being created has no workers
    handle = _opened(manifest, os.O_RDONLY)
    try:
        if not _locked(handle, manifest.parent, _LONGEST_WAIT_S):
            raise RecordError(
                f"{manifest.parent} is in use by workers of a session that has ended"
                f"{_whose(os.fstat(handle).st_ino)}: end them, then --resume"
            )
    finally:
        os.close(handle)


def _locked(handle: int, folder: Path, wait_s: float = 0.0, *, shared: bool = False) -> bool:
    """Returns whether the lock was acquired. Raises RecordError if the file system has no locks."""
    deadline = time.monotonic() + wait_s
    pause = threading.Event()
    with disk_errors_as(
        RecordError, f"{folder} cannot be locked", "choose a --report-dir on a local file system"
    ):
        while not take(handle, shared=shared):
            if time.monotonic() >= deadline:
                return False
            pause.wait(_POLL_S)
    return True


def _whose(inode: int) -> str:
    """Returns which process holds a lock, if the system tells."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
                return f" (process {words[4]})"
    return ""


def _lives(owner: str) -> bool:
    its_boot, pid, start = owner.split(" ")
    # A worker on another machine cannot see the owner's process; its connection to the controller must do.
    return its_boot != boot() or start == _start_of(int(pid))


def boot() -> str:
    """Returns an identifier of the machine's current boot; "unknown" where the system tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _start_of(pid: int) -> str:
    """Returns when a process began, which tells it from a later one with the same id; "gone" if there is
    none."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if state in "ZX" else rest[18]
