"""One process times on a GPU at once, machine-wide.

Who waits holds a shared lock on the GPU's file `.waiting`; who has had the GPU for a while looks whether
somebody does, and gives way. So sessions take turns, and none waits for another's whole sweep.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

_TURN_S = 1.0
_GIVE_WAY_S = 0.02
"""Long enough for who waits to wake up and take the GPU."""


class GpuLock:
    """The right to time on one physical GPU, named by its PCI address."""

    def __init__(self, identity: str) -> None:
        name = re.sub(r"[^0-9a-z]+", "-", identity.lower()).strip("-") or "gpu"
        folder = Path(tempfile.gettempdir()) / "tile-oracle-gpus"
        self._held_path, self._waiting_path = folder / f"{name}.lock", folder / f"{name}.waiting"
        self._fd: int | None = None
        self._since = 0.0
        self._usable = _make_folder(folder)

    def acquire(self) -> None:
        """Blocks until the GPU is free. Where lock files cannot be made, goes on without.

        Called again by who has it, it gives way to others when its turn is over.
        """
        if not self._usable:
            return
        if self._fd is not None:
            if time.monotonic() - self._since < _TURN_S or not self._somebody_waits():
                return
            self.release()
            threading.Event().wait(_GIVE_WAY_S)
        if not self._take(block=False):
            self._wait()
        self._since = time.monotonic()

    def release(self) -> None:
        """Gives the GPU back, if this process has it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _wait(self) -> None:
        waiting = _open(self._waiting_path)
        try:
            if waiting is not None:
                fcntl.flock(waiting, fcntl.LOCK_SH)
            self._take(block=True)
        finally:
            if waiting is not None:
                os.close(waiting)

    def _somebody_waits(self) -> bool:
        waiting = _open(self._waiting_path)
        if waiting is None:
            return False
        try:
            fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(waiting)
        self._since = time.monotonic()  # nobody: the next look is a turn away
        return False

    def _take(self, *, block: bool) -> bool:
        fd = _open(self._held_path)
        if fd is None:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True


def _make_folder(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o777, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o1777)
    except OSError:
        return False
    return not folder.is_symlink()


def _open(path: Path) -> int | None:
    """The lock file, for reading only: that is enough to lock it, and another user may have made it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    for extra in (0, os.O_CREAT | os.O_EXCL, 0):  # there already, made now, made by another meanwhile
        with suppress(OSError):
            fd = os.open(path, flags | extra, 0o644)
            if extra:
                os.fchmod(fd, 0o644)  # whatever the umask: others must be able to open it
            return fd
    return None
