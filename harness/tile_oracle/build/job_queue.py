"""A queue of compile jobs that background threads work through."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from tile_oracle.errors import BuildError

_POLL_S = 0.02


class Job:
    """What waits in a queue. urgent: somebody waits for it now."""

    urgent = False


J = TypeVar("J", bound=Job)


class JobQueue(Generic[J]):
    """Jobs in order, urgent ones first; threads start as they are needed."""

    def __init__(self, threads: int, run: Callable[[J], bool], fail: Callable[[J, Exception], None]) -> None:
        """`run` does a job, or returns False for one that has to wait: it is tried again soon.

        `fail` is told why a job was given up: what `run` raised, or BuildError for a closed queue.
        """
        self._run, self._fail = run, fail
        self._most_threads = self._at_once = threads
        self._changed = threading.Condition()
        self._waiting: deque[J] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = self._busy = 0
        self._closed = False

    def add(self, job: J) -> None:
        """Puts a job at the end."""
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

    def hurry(self, job: J) -> None:
        """Puts a job that has not begun at the front."""
        with self._changed:
            if not job.urgent:
                job.urgent = True
                with suppress(ValueError):
                    self._waiting.remove(job)
                    self._waiting.appendleft(job)

    @property
    def waiting(self) -> tuple[J, ...]:
        """The jobs that have not begun, the next one first."""
        with self._changed:
            return tuple(self._waiting)

    def run_fewer(self) -> None:
        """Halves how many jobs run at once."""
        with self._changed:
            self._at_once = max(1, self._at_once // 2)

    def close(self) -> None:
        """Gives up all jobs that have not begun. Threads end after the job that they are at: `join`."""
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
                # Whoever waits for the job gets the error; this thread goes on for the others.
                self._fail(job, error)
                continue
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()
            if not done:
                self._put_back(job)

    def _put_back(self, job: J) -> None:
        with self._changed:
            if not self._closed:
                # Kept out of the queue meanwhile: other threads could not do it either.
                self._changed.wait(_POLL_S)
            closed = self._closed
            if not closed and job.urgent:
                self._waiting.appendleft(job)
            elif not closed:
                self._waiting.append(job)
        if closed:
            self._fail(job, BuildError("the builder was closed"))
