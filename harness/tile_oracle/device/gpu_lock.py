"""One timing process per GPU, among all processes that share a lock folder.

A waiting process holds a shared lock on the GPU's file `.waiting`. The process that has the GPU checks that
lock regularly and yields. So sessions take turns, and none waits for another session's whole sweep.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time

from tile_oracle.target.lock_files import lock_folder

_TURN_S = 1.0
_GIVE_WAY_S = 0.02
"""Long enough for a waiter to wake up and take the GPU."""


class GpuLock:
    """The right to time on one physical GPU, named by its PCI address."""

    def __init__(self, identity: str) -> None:
        name = re.sub(r"[^0-9a-z]+", "-", identity.lower()).strip("-") or "gpu"
        self._held, self._waiting = f"gpu-{name[:100]}.lock", f"gpu-{name[:100]}.waiting"
        self._fd: int | None = None
        self._since = 0.0
        self._folder = lock_folder()

    def acquire(self) -> None:
        """Blocks until the GPU is free. Without lock files it returns at once.

        If this process already has the GPU and its turn is over, it yields to waiting processes.
        """
        if self._folder is None:
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
        """Releases the GPU, if this process has it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _wait(self) -> None:
        waiting = None if self._folder is None else self._folder.open(self._waiting)
        try:
            if waiting is not None:
                fcntl.flock(waiting, fcntl.LOCK_SH)
            self._take(block=True)
        finally:
            if waiting is not None:
                os.close(waiting)

    def _somebody_waits(self) -> bool:
        if self._folder is not None and self._folder.somebody_holds(self._waiting):
            return True
        self._since = time.monotonic()  # check again after another turn
        return False

    def _take(self, *, block: bool) -> bool:
        self._fd = None if self._folder is None else self._folder.locked(self._held, block=block)
        return self._fd is not None
