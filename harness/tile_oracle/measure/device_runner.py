"""A device's side of the driver: one process that measures assignments with its own isolated worker.

Everything that touches the supervisor happens in one thread. The engine's calls only leave work and take
messages, so they never wait for a kernel.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from tile_oracle.compiling.binary import BuildResult
from tile_oracle.errors import HarnessError, first_line
from tile_oracle.kernel import Kernel
from tile_oracle.libraries.algorithms import Algorithms
from tile_oracle.measure.assignments import Binaries, DeviceSettings, Ended, Message, Opened, Shipment, Work
from tile_oracle.measure.measuring import Measuring
from tile_oracle.measure.shipments import keep
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.problem import problem_from_id
from tile_oracle.targets import resolve_target
from tile_oracle.targets.target import Target

Fetch = Callable[[Any], Shipment | None]
"""Resolves a reference of Binaries.shipped; None if it cannot be had any more."""


def _open_target(settings: DeviceSettings) -> Target:
    """Returns the target with all kernel sources and libraries of the session. Raises HarnessError."""
    target, _ = resolve_target(settings.target, settings.options)
    for source in target.compiled:
        source.kernels.expect([problem_from_id(name) for name in settings.problems])
    target.sources += [Algorithms(one, target.arch) for one in settings.offers]
    return target


class Shipments:
    """Binaries that were built elsewhere, so that a target does not build them again."""

    def __init__(self, target: Target, fetch: Fetch) -> None:
        self._target, self._fetch = target, fetch
        self._binaries: dict[str, Any] = {}
        self._failed: dict[str, str] = {}
        target.built_elsewhere = self._look

    def take(self, binaries: Binaries) -> None:
        """Notes what was built elsewhere."""
        self._binaries |= binaries.shipped
        self._failed |= binaries.failed

    def _look(self, kernel: Kernel) -> BuildResult | None:
        """Returns the failure of a kernel that does not build elsewhere. Puts a binary into this machine's
        cache."""
        log = self._failed.get(kernel.name)
        if log is not None:
            return BuildResult(kernel, "build_error", None, log)
        reference = self._binaries.pop(kernel.name, None)
        builder = self._target.owner(kernel).builder
        if reference is not None and builder is not None:
            # What cannot be shipped is compiled here.
            with suppress(HarnessError, OSError):
                shipment = self._fetch(reference) if builder.needs_compiler(kernel) else None
                if shipment is not None:
                    keep(builder, kernel, shipment)
        return None


class DeviceRunner:
    """One device. `assign`, `withdraw` and `take` may be called from any thread."""

    def __init__(self, settings: DeviceSettings, fetch: Fetch = lambda reference: None) -> None:
        self._settings = settings
        self._fetch = fetch
        self._state = threading.Condition()
        self._work: deque[Work] = deque()
        self._messages: list[Message] = []
        self._measuring: Measuring | None = None
        self._ends = False
        self._opened: Future[Opened] = Future()
        self._thread = threading.Thread(target=self._run, name="fleet device", daemon=True)
        self._thread.start()

    def open(self) -> Opened:
        """Waits until the device is open. Raises HarnessError."""
        return self._opened.result()

    def assign(self, work: Work) -> None:
        """Queues an assignment."""
        with self._state:
            self._work.append(work)
            self._state.notify_all()

    def withdraw(self, number: int, kernels: Iterable[str]) -> None:
        """Leaves kernels of an assignment, and its leaders, to others."""
        if self._measuring is not None:
            self._measuring.withdraw(number, kernels)

    def take(self, wait_s: float, batch_s: float) -> list[Message]:
        """Returns the messages since the last call: waits `wait_s` seconds for the first, and `batch_s` for
        more of them unless the assignment has ended."""
        with self._state:
            if self._state.wait_for(lambda: self._messages, wait_s):
                self._state.wait_for(lambda: isinstance(self._messages[-1], Ended), batch_s)
            taken, self._messages = self._messages, []
        return taken

    def close(self) -> None:
        """Ends the device's worker, whatever it is doing."""
        with self._state:
            self._ends = True
            self._state.notify_all()
        if self._measuring is not None:
            self._measuring.end()
        self._thread.join(timeout=20.0)

    # ---- in the device's thread -------------------------------------------------------------------------

    def _run(self) -> None:
        supervisor = target = None
        number = 0
        try:
            target = _open_target(self._settings)
            shipments = Shipments(target, self._fetch)
            journals = Path(self._settings.journals) if self._settings.journals else None
            supervisor = Supervisor(target, self._settings.sweep, journals)
            measuring = self._measuring = Measuring(supervisor, self._settings.run)
            device = supervisor.open()
            cache = "" if target.builder is None else str(target.builder.cache.folder)
            self._opened.set_result(Opened(device.name, socket.gethostname(), cache))
            while (work := self._next()) is not None:
                number = work.number
                shipments.take(work.binaries)
                try:
                    for message in measuring.messages(work):
                        self._tell(message)
                except HarnessError as error:
                    self._tell(Ended(number, failed=str(error)))
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                self._tell(Ended(number, lost=first_line(RuntimeError(repr(error)))))
        finally:
            if supervisor is not None:
                supervisor.close()
            if target is not None:
                target.close()

    def _next(self) -> Work | None:
        with self._state:
            self._state.wait_for(lambda: self._work or self._ends)
            return None if self._ends else self._work.popleft()

    def _tell(self, message: Message) -> None:
        with self._state:
            self._messages.append(message)
            self._state.notify_all()
