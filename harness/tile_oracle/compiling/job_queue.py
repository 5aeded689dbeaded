"""A queue of compile jobs, run by background threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from tile_oracle.compiling.binary import BuildResult
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel

_POLL_S = 0.02


@dataclass(eq=False)
class Job:
    """A kernel that waits for a compiler. urgent: a caller is blocked on it. locked_since: when another
    session was first seen to build it."""

    kernel: Kernel
    unit: str
    key: str
    future: Future[BuildResult]
    urgent: bool = False
    locked_since: float | None = None


class JobQueue:
    """Jobs in order, urgent ones first. Threads start on demand."""

    def __init__(
        self, threads: int, run: Callable[[Job], bool], fail: Callable[[Job, Exception], None]
    ) -> None:
        """`run` runs a job; when it returns False, the job is queued again after a short wait.

        `fail` gets the reason why a job failed: the exception of `run`, or BuildError for a closed queue.
        """
        self._run, self._fail = run, fail
        self._most_threads = self._at_once = threads
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = self._busy = 0
        self._closed = False

    def add(self, job: Job) -> None:
        """Appends a job."""
        with self._changed:
            closed = self._closed
            if not closed:
                self._waiting.append(job)
                if self._idle < len(self._waiting) and len(self._threads) < self._most_threads:
                    thread = threading.Thread(target=self._work, name="tile-oracle-build", daemon=True)
                    self._threads.append(thread)
                    thread.start()
                self._changed.notify_all()
        if closed:
            self._fail(job, BuildError("the builder is closed"))

    def hurry(self, job: Job) -> None:
        """Moves a waiting job to the front."""
        with self._changed:
            if not job.urgent:
                job.urgent = True
                with suppress(ValueError):
                    self._waiting.remove(job)
                    self._waiting.appendleft(job)

    def run_fewer(self) -> None:
        """Halves the number of jobs that run at once."""
        with self._changed:
            self._at_once = max(1, self._at_once // 2)

    def close(self) -> None:
        """Fails all waiting jobs. Threads stop after their current job; `join` waits for them."""
        with self._changed:
            self._closed = True
            given_up = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for job in given_up:
            self._fail(job, BuildError("the builder was closed"))

    def join(self) -> None:
        """Waits for the threads of a closed queue."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._closed and (not self._waiting or self._busy >= self._at_once):
                    self._changed.wait()
                self._idle -= 1
                if self._closed:
                    return
                job = self._waiting.popleft()
                self._busy += 1
            try:
                done = self._run(job)
            except Exception as error:
                # The job's waiters get the error; this thread goes on with other jobs.
                self._fail(job, error)
                continue
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()
            if not done:
                self._put_back(job)

    def _put_back(self, job: Job) -> None:
        with self._changed:
            if not self._closed:
                # Not in the queue meanwhile: other threads could not run it either.
                self._changed.wait(_POLL_S)
            closed = self._closed
            if not closed and job.urgent:
                self._waiting.appendleft(job)
            elif not closed:
                self._waiting.append(job)
        if closed:
            self._fail(job, BuildError("the builder was closed"))
