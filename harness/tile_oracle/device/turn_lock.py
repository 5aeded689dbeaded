"""The right to time on a core or GPU: sessions that share a lock folder never time on the same one at once.

A process that waits holds a shared lock on a file `.waiting`. A process that has a core or GPU checks that
lock regularly and yields. So workers take turns, and none waits for another worker's whole sweep.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from tile_oracle.files.lock_folder import lock_folder
from tile_oracle.files.locks import take

_TURN_S = 1.0
_POLL_S = 0.01
_GIVE_WAY_TRIES, _GIVE_WAY_S = 50, 0.02


class TurnLock:
    """Takes one of several places, and gives it back. taken: its name, None without one."""

    def __init__(self, places: Sequence[str], waiting: str) -> None:
        """places: names of their lock files, the preferred one first. waiting: name of the waiters' file."""
        self._places, self._waiting = places, waiting
        self._fd: int | None = None
        self._since = 0.0
        self._folder = lock_folder()

    def acquire(self) -> None:
        """Blocks until a place is free. Without lock files it returns at once and has none.

        If this process already has a place and its turn is over, it yields to waiting processes.
        """
        if self._folder is None:
            return
        if self._fd is not None:
            if time.monotonic() - self._since < _TURN_S or not self._somebody_waits():
                return
            self._give_way()
        if not self._take_any():
            self._wait()
        self._since = time.monotonic()

    def release(self) -> None:
        """Gives the place back, if this process has one."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _took(self, place: str) -> None:
        """Called when a place was taken."""

    def _give_way(self) -> None:
        self.release()
        pause = threading.Event()
        for _ in range(_GIVE_WAY_TRIES):
            # Give the waiters time to wake up; taking the lock at once would win it again.
            pause.wait(_GIVE_WAY_S)
            if not self._somebody_waits():
                return

    def _wait(self) -> None:
        waiting = None if self._folder is None else self._folder.open(self._waiting)
        if waiting is None:
            return
        pause = threading.Event()
        try:
            take(waiting, shared=True, wait=True)
            # Poll: blocking on one place's lock would miss that another is free.
            while not self._take_any() and self._can_take():
                pause.wait(_POLL_S)
        finally:
            os.close(waiting)

    def _take_any(self) -> bool:
        for place in self._places:
            self._fd = None if self._folder is None else self._folder.locked(place)
            if self._fd is not None:
                self._took(place)
                return True
        return False

    def _can_take(self) -> bool:
        """Returns whether any lock file can be opened."""
        for place in self._places:
            fd = None if self._folder is None else self._folder.open(place)
            if fd is not None:
                os.close(fd)
                return True
        return False

    def _somebody_waits(self) -> bool:
        if self._folder is not None and self._folder.somebody_holds(self._waiting):
            return True
        self._since = time.monotonic()  # check again after another turn
        return False


class GpuLock(TurnLock):
    """The right to time on one physical GPU, named by its PCI address."""

    def __init__(self, identity: str) -> None:
        name = re.sub(r"[^0-9a-z]+", "-", identity.lower()).strip("-")[:100] or "gpu"
        super().__init__([f"gpu-{name}.lock"], f"gpu-{name}.waiting")


class CoreLock(TurnLock):
    """The right to time on a free core, to which this process is pinned meanwhile."""

    def __init__(self) -> None:
        self._allowed = sorted(os.sched_getaffinity(0))
        # Highest core first: core 0 serves most interrupts.
        super().__init__([f"core-{core}.lock" for core in reversed(self._allowed)], "cores.waiting")

    def release(self) -> None:
        if self._fd is not None:
            self._pin(self._allowed)
        super().release()

    def _took(self, place: str) -> None:
        self._pin([int(place.removeprefix("core-").removesuffix(".lock"))])

    @staticmethod
    def _pin(cores: list[int]) -> None:
        # The process's allowed cores may have changed meanwhile.
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
