"""One timed kernel a core, machine-wide: two sessions never time on the same core at once.

Who waits for a core holds a shared lock on the file `waiting`; who has had one for a while looks whether
somebody does, and gives way. So more workers than cores take turns, and none waits for another's whole sweep.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

_TURN_S = 1.0
_WAITING = "waiting.lock"
_POLL_S = 0.01
_GIVE_WAY_TRIES, _GIVE_WAY_S = 50, 0.02


class CoreLock:
    """Takes a free core, pins this process to it, and gives it back."""

    def __init__(self) -> None:
        self._allowed = sorted(os.sched_getaffinity(0))
        self._fd: int | None = None
        self._since = 0.0
        self._folder = Path(tempfile.gettempdir()) / "tile-oracle-cores"
        self._usable = self._make_folder()

    def acquire(self) -> None:
        """Blocks until a core is free. Where lock files cannot be made, pins nothing and goes on.

        Called again by who has a core, it gives way to others when its turn is over.
        """
        if not self._usable:
            return
        if self._fd is not None:
            if time.monotonic() - self._since < _TURN_S or not self._somebody_waits():
                return
            self._give_way()
        if not self._take_any():
            self._wait_for_core()
        self._since = time.monotonic()

    def _give_way(self) -> None:
        self.release()
        pause = threading.Event()
        for _ in range(_GIVE_WAY_TRIES):
            # Who waits must wake up first: whoever asks again at once gets the lock again.
            pause.wait(_GIVE_WAY_S)
            if not self._somebody_waits():
                return

    def _wait_for_core(self) -> None:
        waiting = self._open(self._folder / _WAITING)
        if waiting is None:
            return
        pause = threading.Event()
        try:
            fcntl.flock(waiting, fcntl.LOCK_SH)
            # Asked again and again, since to block on one core's lock is not to see that another is free.
            while not self._take_any() and self._can_take():
                pause.wait(_POLL_S)
        finally:
            os.close(waiting)

    def _take_any(self) -> bool:
        # The highest core first: core 0 serves most of the machine's interrupts.
        return any(self._take(core) for core in reversed(self._allowed))

    def _can_take(self) -> bool:
        """Whether there is a lock file that can be opened at all."""
        for core in self._allowed:
            fd = self._open(self._folder / f"{core}.lock")
            if fd is not None:
                os.close(fd)
                return True
        return False

    def _somebody_waits(self) -> bool:
        waiting = self._open(self._folder / _WAITING)
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

    def release(self) -> None:
        """Gives the core back, if there is one."""
        if self._fd is None:
            return
        self._pin(self._allowed)
        os.close(self._fd)
        self._fd = None

    def _make_folder(self) -> bool:
        try:
            self._folder.mkdir(mode=0o777, exist_ok=True)
            if self._folder.stat().st_uid == os.getuid():
                self._folder.chmod(0o1777)
        except OSError:
            return False
        return not self._folder.is_symlink()

    def _take(self, core: int) -> bool:
        fd = self._open(self._folder / f"{core}.lock")
        if fd is None:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        self._pin([core])
        return True

    @staticmethod
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

    @staticmethod
    def _pin(cores: list[int]) -> None:
        # The cores that this process may use can have been changed meanwhile.
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
