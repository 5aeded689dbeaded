"""A device's side of a fleet: one process that measures assignments with its own isolated worker.

Everything that touches the supervisor happens in one thread. The engine's calls only leave work and take
messages, so they never wait for a kernel.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from tile_oracle.compiling.binary import BuildResult
from tile_oracle.errors import HarnessError, first_line
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import (
    Binaries,
    DeviceSettings,
    Ended,
    Message,
    Opened,
    Result,
    Row,
    Shipment,
    Work,
)
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.shipments import keep
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.target_of_settings import open_target
from tile_oracle.measure.twins import TwinSweeper
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.journal_line import encode_line
from tile_oracle.targets.target import Target

Fetch = Callable[[Any], Shipment | None]
"""Resolves a reference of Binaries.shipped; None if it cannot be had any more."""


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
        """The failure of a kernel that does not build elsewhere. Puts a binary into this machine's cache."""
        log = self._failed.get(kernel.name)
        if log is not None:
            return BuildResult(kernel, "build_error", None, log, 0.0, cached=True)
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
        self._number = 0
        self._withdrawn: frozenset[str] = frozenset()
        self._finals = False
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
        with self._state:
            if number == self._number:
                self._withdrawn |= frozenset(kernels)
                self._finals = False

    def take(self, wait_s: float, batch_s: float) -> list[Message]:
        """The messages since the last call: waits `wait_s` seconds for the first, and `batch_s` for more of
        them unless the assignment has ended."""
        with self._state:
            if self._state.wait_for(lambda: self._messages, wait_s):
                self._state.wait_for(lambda: isinstance(self._messages[-1], Ended), batch_s)
            taken, self._messages = self._messages, []
        return taken

    def close(self) -> None:
        """Ends the device's worker, whatever it is doing."""
        with self._state:
            self._ends = True
            self._withdrawn, self._finals = frozenset(), False
            self._state.notify_all()
        self._thread.join(timeout=20.0)

    # ---- in the device's thread -------------------------------------------------------------------------

    def _run(self) -> None:
        supervisor = target = None
        try:
            target = open_target(self._settings)
            shipments = Shipments(target, self._fetch)
            supervisor = Supervisor(target, self._settings.sweep)
            sweeper = TwinSweeper(supervisor)
            device = supervisor.open()
            cache = "" if target.builder is None else str(target.builder.cache.folder)
            self._opened.set_result(
                Opened(device.name, device.driver, socket.gethostname(), os.getpid(), cache)
            )
            while (work := self._next()) is not None:
                self._tell(self._measured(work, shipments, supervisor, sweeper))
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                self._tell(Ended(self._number, lost=first_line(RuntimeError(repr(error)))))
        finally:
            if supervisor is not None:
                supervisor.close()
            if target is not None:
                target.close()

    def _next(self) -> Work | None:
        with self._state:
            self._state.wait_for(lambda: self._work or self._ends)
            if self._ends:
                return None
            work = self._work.popleft()
            self._number, self._withdrawn, self._finals = work.number, frozenset(), work.finals
        return work

    def _tell(self, message: Message) -> None:
        with self._state:
            self._messages.append(message)
            self._state.notify_all()

    def _measured(
        self, work: Work, shipments: Shipments, supervisor: Supervisor, sweeper: TwinSweeper
    ) -> Ended:
        """Measures an assignment."""
        shipments.take(work.binaries)
        problem = problem_from_id(work.problem)
        try:
            for one in self._measurements(work, problem, sweeper):
                if one.status == "device_lost":
                    continue  # it is measured elsewhere
                row = {
                    "run": self._settings.run,
                    "time": datetime.now(UTC).isoformat(),
                    **supervisor.row_of(one),
                }
                self._tell(
                    Row(
                        work.number,
                        problem.id,
                        one.kernel.name,
                        Result.of(one),
                        encode_line(row),
                        one.state.throttled or "",
                    )
                )
                if self._ends:
                    return Ended(work.number, lost="closed")
        except HarnessError as error:
            return Ended(work.number, failed=str(error))
        return Ended(work.number, lost=supervisor.lost or "")

    def _measurements(self, work: Work, problem: Problem, sweeper: TwinSweeper) -> Iterable[Measurement]:
        known = [result.measurement(problem, parse_kernel_name(name)) for name, result in work.known]
        if work.again:
            timed = [result.measurement(problem, parse_kernel_name(name)) for name, result in work.again]
            yield from sweeper.remeasure(problem, timed, work.again_round, known)
            return
        yield from sweeper.sweep(
            problem,
            [parse_kernel_name(name) for name in work.kernels],
            known,
            picks=[parse_kernel_name(name) for name in work.picks],
            keep_samples=self._settings.keep_samples,
            wanted=lambda kernel: not self._ends and kernel.name not in self._withdrawn,
            finals=lambda: self._finals,
        )
