"""The device of this process: it measures while it is asked for events, and so needs no thread."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

from tile_oracle.measure.assignments import Ended, Message, Opened, Work
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.engine import Engine, Event, Joined, Told
from tile_oracle.measure.measuring import Measuring
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.problem import Problem

_NAME = "this process"


class OwnDevice(Engine):
    """See tile_oracle.measure.engine.Engine."""

    def __init__(self, supervisor: Supervisor, run: str, builds: Builds) -> None:
        """run: see Measuring. builds: what the device waits for when it has no assignment."""
        self._builds = builds
        self._supervisor = supervisor
        self._measuring = Measuring(supervisor, run, elsewhere=False)
        self._is_open = False
        self._going: Iterator[Message] | None = None

    def events(self, wait_s: float) -> list[Event]:
        """Returns the next row of the assignment; without one, waits for a binary. Raises HarnessError when
        nothing can be measured."""
        if not self._is_open:
            device = self._supervisor.open()
            self._is_open = True
            return [Joined(_NAME, Opened(device.name, socket.gethostname()))]
        if self._going is None:
            with self._supervisor.waiting_for_compilers():
                self._builds.wait(wait_s)
            return []
        going, self._going = self._going, None
        message = next(going)
        if not isinstance(message, Ended):
            self._going = going
        return [Told(_NAME, [message])]

    def assign(self, device: str, work: Work) -> None:
        self._going = self._measuring.messages(work)

    def prepare(self, problem: Problem) -> None:
        self._supervisor.prepare(problem)

    def withdraw(self, device: str, number: int, kernels: Sequence[str]) -> None:
        self._measuring.withdraw(number, kernels)

    def drop(self, device: str, *, again: bool) -> None:
        self._is_open = self._is_open and not again

    def close(self) -> None:
        self._going = None
        self._supervisor.close()
