"""Kills workers of pytest-xdist that were stopped (SIGSTOP) and not continued.

xdist waits for a silent worker without limit. Measurements have time limits, so a running worker reports
eventually; a stopped one never does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tile_oracle.session.worker_processes import state_of, worker_processes

STOPPED_LIMIT_S = 10
"""How long a worker may be stopped. Ctrl-Z stops the whole session, including this thread."""


class StoppedWorkers:
    """A thread that kills this process's workers when they are stopped for longer than the limit.

    tell: called from the thread with one line per killed worker.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._end = threading.Event()
        self._seen: Counter[int] = Counter()
        self._thread = threading.Thread(target=self._watch, name="stopped-workers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        # Counts polls, not seconds: time that passes while this process is stopped does not count.
        while not self._end.wait(1.0):
            stopped = {pid for pid in worker_processes() if state_of(pid) == "T"}
            for pid in [*self._seen]:
                if pid not in stopped:
                    del self._seen[pid]
            for pid in sorted(stopped):
                self._seen[pid] += 1
                if self._seen[pid] > STOPPED_LIMIT_S:
                    del self._seen[pid]
                    self._kill(pid)

    def _kill(self, pid: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            self._tell(
                f"worker process {pid} was stopped for {STOPPED_LIMIT_S} s and has been killed: "
                "its tests go to another worker"
            )
