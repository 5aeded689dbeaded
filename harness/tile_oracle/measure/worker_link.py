"""Manages the worker processes of one device, one at a time: starts, commands, reads and replaces them.

A worker that dies while no kernel runs is replaced, and no kernel is blamed. After a death during a kernel, a
known-good kernel runs first, so that a lost device is detected at once and not blamed on every later kernel.
"""

from __future__ import annotations

import itertools
import os
import time
from contextlib import suppress
from pathlib import Path

from tile_oracle.errors import DeviceMissingError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.measure.answer import has_spoilt_its_worker
from tile_oracle.measure.child import Child
from tile_oracle.measure.commands import Load, Open, Run
from tile_oracle.measure.containment import Containment, containment_for
from tile_oracle.measure.data_ahead import DataAhead
from tile_oracle.measure.live_worker import QUIET_LIMIT_S, LiveWorker, Silence
from tile_oracle.measure.protocol import ChannelClosed, ChannelGarbled, Message
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.problem import Problem
from tile_oracle.record.attempts import Attempts
from tile_oracle.targets.base import DeviceInfo
from tile_oracle.targets.target import Target

_MOST_UNEXPLAINED_DEATHS = 3
"""Successive deaths of the worker without a running kernel, after which the device counts as lost."""
_BUDGETS_AT_MOST = 4
"""Budgets that a noisy kernel may take: three for samples, and the warm-up."""
_OPEN_LIMIT_S = 120.0
_PROBE = -1
_OWN_OR_OUTSIDE = ("killed by SIGKILL", "ended by ", "wrote into the pipe")
"""Deaths that no earlier kernel of the same worker can have caused."""
_numbers = itertools.count()


class Lost(Exception):
    """The device no longer responds."""


class Refused(Exception):
    """The device cannot take the problem."""


class Died(Exception):
    """The worker died or was killed: status and detail for the kernel that ran."""

    def __init__(self, status: str, detail: str, job_id: int | None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.job_id = status, detail, job_id

    @property
    def may_be_others(self) -> bool:
        """Whether an earlier kernel of the same worker may have caused it."""
        return self.status == "crash" and not self.detail.startswith(_OWN_OR_OUTSIDE)


class WorkerLink:
    """The worker of one device, with the state of both. Not thread-safe; must be closed.

    device: None before a worker has opened it. suspect: a known-good kernel must run before the next one.
    lost: why the device no longer responds, or None. attempts: their log, written before each run; None when
    nothing is recorded. kernel_seconds: time that the worker has spent in kernels, in check and timing runs;
    for a kernel that crashed, the time until the crash.
    """

    def __init__(
        self,
        target: Target,
        settings: SweepSettings,
        journals: Path | None,
        containment: Containment | None,
    ) -> None:
        """journals: the session's journal folder, or None. containment: how workers are contained; None for
        the default of target and machine."""
        self.target = target
        self.settings = settings
        self.device: DeviceInfo | None = None
        self.kernel_seconds = 0.0
        self.suspect = False
        self.lost: str | None = None
        self.attempts = Attempts(journals.parent, f"{os.getpid()}-{next(_numbers)}") if journals else None
        self._containment = containment
        self._journals = journals
        self._worker: LiveWorker | None = None
        self._ahead = DataAhead()
        self._good: list[tuple[Problem, Path]] = []
        """The last two good binaries, latest first, each with the problem that it ran on."""
        self._unexplained = 0
        self.used = False
        """Whether the worker has been given a kernel that is not known to be good."""
        self.ids = itertools.count(1)
        """The identities of runs."""

    @property
    def is_busy(self) -> bool:
        """Whether results of the worker are outstanding."""
        return self._worker is not None and self._worker.is_busy

    def open(self) -> DeviceInfo:
        """Starts the worker and opens the device. Raises DeviceMissingError when that fails."""
        if self._worker is None:
            try:
                self._start()
            except Lost as error:
                raise DeviceMissingError(f"target {self.target.name} cannot be opened: {error}") from None
        assert self.device is not None
        return self.device

    def close(self) -> None:
        """Ends the worker, whatever it is doing."""
        if self._worker is not None and not (self._worker.is_busy or self._worker.loading):
            self._worker.child.quit()
        self.drop()
        self._ahead.close()
        if self.attempts is not None:
            self.attempts.close()

    def interrupt(self) -> None:
        """Kills the worker, and starts no other. May be called from another thread."""
        self.lost = self.lost or "the session has ended"
        worker = self._worker
        if worker is not None:
            worker.child.interrupt()

    @property
    def worker_pid(self) -> int | None:
        return self._worker.child.pid if self._worker is not None else None

    def _start(self) -> LiveWorker:
        """Start a worker; try twice, since one failed call says nothing about the device. Raises Lost."""
        with suppress(Lost):
            return self._start_once()
        return self._start_once()

    def _start_once(self) -> LiveWorker:
        self.drop()
        options = dict(self.target.device_options())
        with disk_errors_as(Lost, "no worker process can be started"):
            containment = self._containment or containment_for(self.target.name, self._journals)
            worker = self._worker = LiveWorker(Child(containment))
        try:
            worker.ask(
                Open(
                    self.target.device_module,
                    self.settings.timing,
                    options,
                    self.settings.cold_cache,
                    str(self.attempts.path) if self.attempts and self.attempts.path else "",
                    self.settings.keep_samples,
                )
            )
            answer = worker.answer(_OPEN_LIMIT_S, "opened", "failed")
        except ChannelClosed:
            death = worker.child.death()
            self.drop()
            raise Lost(f"the worker {death}") from None
        if answer is None or "opened" not in answer:
            self.drop()
            raise Lost(answer["failed"] if answer is not None else f"no answer within {_OPEN_LIMIT_S:g} s")
        self.device = DeviceInfo(**answer["opened"])
        return worker

    def drop(self) -> None:
        """Kills the worker and forgets everything that was sent to it."""
        worker, self._worker, self.used = self._worker, None, False
        if worker is not None:
            worker.child.kill()

    def ready(self, problem: Problem) -> None:
        """Ensures a worker that has the problem loaded. Raises Refused or Lost."""
        if self.lost is not None:
            raise Lost(self.lost)
        if self._unexplained >= _MOST_UNEXPLAINED_DEATHS:
            raise Lost(f"the worker died {self._unexplained} times in a row while no kernel ran")
        death = ""
        for _ in range(2):
            if self.suspect:
                self._probe()
            try:
                self._load(problem)
            except Died as died:
                self.suspect, death = True, died.detail
                continue
            return
        if not self._good:
            raise Lost(death)
        # Other problems ran well on this device, so this problem is the cause.
        raise Refused(death)

    def _load(self, problem: Problem) -> None:
        """Loads the problem. Raises Refused, Died, and Lost when no worker starts."""
        worker = self._worker or self._start()
        if worker.loaded == problem:
            return
        try:
            if worker.loading not in (None, problem):
                worker.answer(QUIET_LIMIT_S, "loaded", "refused")  # nobody has asked for that problem
            if worker.loading != problem:
                self._send(worker, problem)
            answer = worker.answer(QUIET_LIMIT_S, "loaded", "refused")
            worker.loading = None
        except ChannelClosed as closed:
            died = self._death(worker, closed)
            raise Died("crash", f"the worker {died.detail} while it prepared the problem", None) from None
        if answer is None:
            self.drop()
            raise Died("timeout", "the worker did not finish preparing the problem", None)
        if "refused" in answer:
            raise Refused(answer["refused"])
        worker.loaded = problem

    def _send(self, worker: LiveWorker, problem: Problem) -> None:
        """Has the worker load the problem. Raises ChannelClosed."""
        worker.loaded, worker.loading = None, problem
        command = Load(problem.as_row(), self.settings.seed, made=self._ahead.take(problem))
        if self.attempts is not None:
            self.attempts.note_problem(problem.id)
            command.careful = self.attempts.careful(problem.id)
        worker.ask(command)
        if self.attempts is not None:
            self.attempts.sync()  # while the worker loads

    def prepare(self, problem: Problem) -> None:
        """Has a worker without work load the problem that probably comes next. `ready` takes the answer."""
        worker = self._worker
        idle = worker is not None and not (worker.is_busy or worker.loading or self.suspect)
        if worker is not None and idle and not self._ahead.is_making(problem):
            with suppress(ChannelClosed):  # `ready` finds out, too
                self._send(worker, problem)

    def make_ahead(self, problem: Problem) -> None:
        """Has another process make the data of the problem that probably comes next, while the worker
        measures."""
        if self.target.is_gpu:
            self._ahead.ask(problem, self.settings.seed)

    def _probe(self) -> None:
        """Runs known-good kernels, each in a second worker if it fails in the first.

        The device is lost when all of them fail; a single failure may be the kernel's own fault. Raises Lost.
        """
        failure: str | None = None
        for good in tuple(self._good):
            failure = self._try_good(*good)
            if failure is not None:
                self.drop()
                failure = self._try_good(*good)
            if failure is None:
                break
            self.drop()
            self.distrust(good[1])
        if failure is not None:
            raise Lost(f"a known-good kernel {failure}")
        self.suspect = False

    def trust(self, problem: Problem, binary: Path) -> None:
        self._good = [(problem, binary), *(good for good in self._good if good[1] != binary)][:2]

    def distrust(self, binary: Path) -> None:
        """Stops judging the device by a kernel that has failed, if there is another."""
        self._good = [good for good in self._good if good[1] != binary] or self._good

    def _try_good(self, problem: Problem, binary: Path) -> str | None:
        """Returns how a known-good kernel fails now, or None."""
        try:
            self._load(problem)
            self.live_worker.run(Run(_PROBE, str(binary)))
            answer = self.next_result(problem)
            if has_spoilt_its_worker(answer):
                self.drop()
        except (Died, Refused) as error:
            return f"now fails: {error}"
        return (
            None if answer["status"] in ("ok", "noisy") else f"is now {answer['status']}: {answer['detail']}"
        )

    @property
    def live_worker(self) -> LiveWorker:
        """The worker, which `ready` has ensured."""
        assert self._worker is not None
        return self._worker

    def next_result(self, problem: Problem) -> Message:
        """Returns the result of the next finished kernel.

        Raises Died when the worker dies or a kernel times out, and Lost when the worker never starts a
        kernel.
        """
        assert self._worker is not None
        limit = self.settings.timeout_s or (
            self.target.timeout_s(problem) + _BUDGETS_AT_MOST * self.settings.timing.budget_ms / 1e3
        )
        try:
            result = self._worker.next_result(limit)
        except Silence as silence:
            raise self._silence(self._worker, limit, missed=silence.missed_command) from None
        except ChannelClosed as closed:
            raise self._death(self._worker, closed) from None
        self._unexplained = 0
        self.kernel_seconds += result["kernel_seconds"]
        return result

    def _silence(self, worker: LiveWorker, limit: float, *, missed: bool) -> Died | Lost:
        if worker.child.ended:
            # A process that it started must hold its pipe open, or the channel would have closed.
            return self._death(worker, ChannelClosed())
        if missed:
            return self._death(worker, ChannelGarbled())
        if worker.running is None:
            self.drop()
            return Lost(f"the worker waited {QUIET_LIMIT_S:g} s for the device")
        died = Died("timeout", worker.child.with_output(f"no result after {limit:g} s"), worker.running)
        self.kernel_seconds += limit
        self.drop()
        return died

    def _death(self, worker: LiveWorker, closed: ChannelClosed) -> Died:
        job = worker.running
        if job is not None:
            self.kernel_seconds += time.monotonic() - worker.since
        status = "crash"
        if isinstance(closed, ChannelGarbled):
            detail = worker.child.with_output("wrote into the pipe between worker and harness")
        else:
            detail = worker.child.death()
            if worker.child.stopped_the_harness:
                status = "timeout"
        self.drop()
        self.suspect = True
        self._unexplained += job is None
        return Died(status, detail, job)
