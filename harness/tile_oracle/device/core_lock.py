"""One timed kernel per core: sessions that share a lock folder never time on the same core at once.

A process that waits for a core holds a shared lock on the file `cores.waiting`. A process that has a core
checks that lock regularly and yields. If there are more workers than cores, they take turns, and none waits
for another worker's whole sweep.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress

from tile_oracle.target.lock_files import lock_folder

_TURN_S = 1.0
_WAITING = "cores.waiting"
_POLL_S = 0.01
_GIVE_WAY_TRIES, _GIVE_WAY_S = 50, 0.02


class CoreLock:
    """Takes a free core, pins this process to it, and gives it back."""

    def __init__(self) -> None:
        self._allowed = sorted(os.sched_getaffinity(0))
        self._fd: int | None = None
        self._since = 0.0
        self._folder = lock_folder()

    def acquire(self) -> None:
        """Blocks until a core is free. Without lock files it returns at once and pins nothing.

        If this process already has a core and its turn is over, it yields to waiting processes.
        """
        if self._folder is None:
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
            # Give the waiters time to wake up; taking the lock at once would win it again.
            pause.wait(_GIVE_WAY_S)
            if not self._somebody_waits():
                return

    def _wait_for_core(self) -> None:
        waiting = None if self._folder is None else self._folder.open(_WAITING)
        if waiting is None:
            return
        pause = threading.Event()
        try:
            fcntl.flock(waiting, fcntl.LOCK_SH)
            # Poll: blocking on one core's lock would miss that another core is free.
            while not self._take_any() and self._can_take():
                pause.wait(_POLL_S)
        finally:
            os.close(waiting)

    def _take_any(self) -> bool:
        # Highest core first: core 0 serves most interrupts.
        return any(self._take(core) for core in reversed(self._allowed))

    def _can_take(self) -> bool:
        """Whether any lock file can be opened."""
        for core in self._allowed:
            fd = None if self._folder is None else self._folder.open(_name(core))
            if fd is not None:
                os.close(fd)
                return True
        return False

    def _somebody_waits(self) -> bool:
        if self._folder is not None and self._folder.somebody_holds(_WAITING):
            return True
        self._since = time.monotonic()  # check again after another turn
        return False

    def release(self) -> None:
        """Releases the core, if this process has one."""
        if self._fd is None:
            return
        self._pin(self._allowed)
        os.close(self._fd)
        self._fd = None

    def _take(self, core: int) -> bool:
        self._fd = None if self._folder is None else self._folder.locked(_name(core), block=False)
        if self._fd is None:
            return False
        self._pin([core])
        return True

    @staticmethod
    def _pin(cores: list[int]) -> None:
        # The process's allowed cores may have changed meanwhile.
        with suppress(OSError):
            os.sched_setaffinity(0, cores)


def _name(core: int) -> str:
    return f"core-{core}.lock"
