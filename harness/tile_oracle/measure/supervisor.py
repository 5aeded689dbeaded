"""The parent's side of measuring: feeds a worker, takes its results, survives its deaths.

A kernel that kills the worker is a `crash`, one that does not come back a `timeout`; the others go on in
a new worker. After such a death a kernel known to be good runs first, so that a device that is gone is
seen at once and not blamed on every later kernel. A worker that dies while no kernel runs is replaced,
and nobody is blamed.

Nobody pays for another kernel either: a worker that is not as it was before a kernel is replaced, and a
kernel that fails in a worker that others have used, in a way that may be their doing, has a second try in a
new one before its failure is believed.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tile_oracle.build.complaint import shortened
from tile_oracle.errors import DeviceMissingError, TargetError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.child import Child
from tile_oracle.measure.containment import Containment, containment_for
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.messages import Conversation, checked
from tile_oracle.measure.protocol import ChannelClosed, ChannelGarbled, Message
from tile_oracle.measure.timing_plan import TimingPlan
from tile_oracle.problem import Problem
from tile_oracle.record.attempts import Attempts
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.target.base import DataFiles, DeviceInfo, Target
from tile_oracle.target.device_state import DeviceState

if TYPE_CHECKING:
    from tile_oracle.build.builder import BuildResult

_WINDOW = 8
"""Kernels handed to the worker ahead of their turn, so that it never waits for the parent."""
_QUIET_LIMIT_S = 1800.0
"""How long a worker may wait for the device before its silence counts as a fault."""
_MOST_UNEXPLAINED_DEATHS = 3
"""Deaths of the worker in a row, with no kernel running, after which the device counts as lost."""
_BUDGETS_AT_MOST = 4
"""What a noisy kernel may take: three budgets of samples, and the warm-up."""
_LOOK_S = 2.0
"""Between looks at a worker that is waited for while no kernel runs."""
_MOST_STOPPED_LOOKS = 5
"""Looks in a row that find the worker stopped by a signal, after which it is replaced: 10 s."""
_OPEN_LIMIT_S = 120.0
_FAR_BEHIND = 2.0
"""A pick this many times slower than the best is not measured again: noise cannot change what it says."""
_STOLEN_S = 2.0
"""How long a worker that rests may seem to have missed a command: one may be under way."""
_PROBE = -1
_LEFT_BEHIND = "left {} processes running behind it"
_OWN_OR_OUTSIDE = ("killed by SIGKILL", "ended by ", "wrote into the pipe")
"""What no earlier kernel of the same worker can have caused."""
_numbers = itertools.count()
_LOG_CHARACTERS = 2000
"""Of a compiler's log, in a record's detail."""
_ANSWER_FIELDS = (
    *("status", "detail", "latency_ms", "latency_min_ms", "spread", "samples", "check", "check_points"),
    *("busy_ms", "facts"),
)


@dataclass(frozen=True)
class SweepSettings:
    """How a problem is measured.

    timeout_s: limit for one kernel, or None for the target's own. leaders_within: kernels at most this
    much slower than the best (a fraction) are measured again, at most max_leaders of them, and at most
    max_noisy of the noisy ones, in final_passes interleaved passes of final_budget_ms each and at most
    final_samples samples, or fewer for long kernels (final_total_ms). cold_cache: flush the caches before
    each timed run.
    """

    timing: TimingPlan = field(default_factory=TimingPlan)
    seed: int = 20260
    timeout_s: float | None = None
    leaders_within: float = 0.10
    max_leaders: int = 6
    max_noisy: int = 16
    final_passes: int = 5
    final_budget_ms: float = 4.0
    final_samples: int = 100
    final_total_ms: float = 2000.0
    cold_cache: bool = False


@dataclass(frozen=True)
class Applied:
    """What became of a kernel on a caller's data. status: ok, unsupported, build_error, wrong, crash or
    timeout."""

    status: str
    detail: str


@dataclass
class _Job:
    kernel: Kernel
    binary: Path
    alone: bool
    """No other kernel has run in its worker, but one known to be good."""


class _Lost(Exception):
    """The device does not answer any more."""


class _Refused(Exception):
    """The device cannot take the problem."""


class _Died(Exception):
    """The worker died or was killed: status and detail for the kernel that ran."""

    def __init__(self, status: str, detail: str, job_id: int | None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.job_id = status, detail, job_id

    @property
    def may_be_others(self) -> bool:
        """Whether an earlier kernel of the same worker may have caused it."""
        return self.status == "crash" and not self.detail.startswith(_OWN_OR_OUTSIDE)


class Supervisor:
    """Owns the worker of one device. Not thread-safe; close it.

    kernel_seconds: time that the worker spent inside kernels so far, check and timing runs alike; of a
    kernel that died, the time until then.
    """

    def __init__(
        self,
        target: Target,
        settings: SweepSettings,
        journals: Path | None = None,
        containment: Containment | None = None,
    ) -> None:
        """journals: where the session records, or None. containment: how workers are held, or None for what
        suits the target and the machine."""
        self.target = target
        self._containment = containment
        self.settings = settings
        self.device: DeviceInfo | None = None
        self.kernel_seconds = 0.0
        self._journals = journals
        self._child: Child | None = None
        self._loaded: Problem | None = None
        self._good: list[tuple[Problem, Path]] = []
        """The two binaries that last were good, the latest first, and the problems they were good on."""
        self._suspect = False
        self._lost: str | None = None
        self._unexplained = 0
        self._next_id = 0
        self._talk = Conversation()
        self._since = 0.0
        """When the kernel that runs began, by our clock."""
        self._used = False
        """Whether a kernel that is not known to be good has been handed to this worker."""
        self._first_failures: dict[Kernel, Measurement] = {}
        """Of kernels that wait for their second try, alone in a new worker."""
        self.attempts = Attempts(journals.parent, f"{os.getpid()}-{next(_numbers)}") if journals else None

    # ---- the worker's life ------------------------------------------------------------------

    def open(self) -> DeviceInfo:
        """Start the worker and open the device. Raises DeviceMissingError when that fails."""
        if self._child is None:
            try:
                self._start()
            except _Lost as error:
                raise DeviceMissingError(f"target {self.target.name} cannot be opened: {error}") from None
        assert self.device is not None
        return self.device

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        if self._child is not None and not self._talk.open:
            self._child.quit()
        self._drop()
        if self.attempts is not None:
            self.attempts.close()

    @property
    def worker_pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def _start(self) -> Child:
        self._drop()
        options = dict(self.target.device_options())
        try:
            containment = self._containment or containment_for(self.target.name, self._journals)
            child = self._child = Child(self._journals, containment)
        except OSError as error:
            raise _Lost(f"no worker process can be started: {error.strerror}") from None
        try:
            child.channel.send(
                {
                    "do": "open",
                    "device_module": self.target.device_module,
                    "device_options": options,
                    "timing": asdict(self.settings.timing),
                    "cold_cache": self.settings.cold_cache,
                    "attempts": str(self.attempts.path) if self.attempts and self.attempts.path else "",
                }
            )
            self._talk.handed()
            answer = self._answer(_OPEN_LIMIT_S, "opened", "failed")
        except ChannelClosed:
            death = child.death()
            self._drop()
            raise _Lost(f"the worker {death}") from None
        if answer is None or "opened" not in answer:
            self._drop()
            raise _Lost(answer["failed"] if answer is not None else f"no answer within {_OPEN_LIMIT_S:g} s")
        self.device = DeviceInfo(**answer["opened"])
        return child

    def _drop(self) -> None:
        """Be rid of the worker and of all that it was given."""
        if self._child is not None:
            self._child.kill()
        self._child = self._loaded = None
        self._talk = Conversation()
        self._used = False

    def _answer(self, limit_s: float, *kinds: str) -> Message | None:
        """The worker's answer to a command that runs no kernel; None when it does not come in time. Raises
        ChannelClosed."""
        assert self._child is not None
        deadline = time.monotonic() + limit_s
        while True:
            message = self._receive_while_idle(deadline - time.monotonic())
            if message is None:
                return None
            message = checked(message)
            if any(kind in message for kind in kinds):
                return message
            if "resting" not in message:
                raise ChannelGarbled
            self._talk.resting(message)

    def _receive_while_idle(self, limit_s: float) -> Message | None:
        """The next message of a worker that runs no kernel, or None after `limit_s`. Ends a worker that is
        stopped: nobody else may ever let it go on. Raises ChannelClosed."""
        assert self._child is not None
        deadline = time.monotonic() + limit_s
        # Looks are counted, not seconds: when this process was stopped too, both go on.
        stopped = 0
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            message = self._child.channel.receive(min(left_s, _LOOK_S))
            if message is not None or left_s <= _LOOK_S:
                return message
            stopped = stopped + 1 if self._child.stopped else 0
            if stopped >= _MOST_STOPPED_LOOKS:
                self._child.kill(f"was stopped for {stopped * _LOOK_S:g} s and has been killed")
                raise ChannelClosed

    def _ready(self, problem: Problem) -> None:
        """See to a worker that has the problem loaded. Raises _Refused, or _Lost."""
        if self._lost is not None:
            raise _Lost(self._lost)
        if self._unexplained >= _MOST_UNEXPLAINED_DEATHS:
            raise _Lost(f"the worker died {self._unexplained} times in a row while no kernel ran")
        death = ""
        for _ in range(2):
            if self._suspect:
                self._probe()
            try:
                self._load(problem)
            except _Died as died:
                self._suspect, death = True, died.detail
                continue
            return
        if not self._good:
            raise _Lost(death)
        # Other problems go well on this device, so it is this one.
        raise _Refused(death)

    def _load(self, problem: Problem) -> None:
        """Raises _Refused, _Lost when no worker starts, or _Died."""
        child = self._child or self._start()
        if self._loaded == problem:
            return
        self._loaded = None
        try:
            command = {"do": "load", "problem": problem.as_row(), "seed": self.settings.seed}
            if self.attempts is not None:
                self.attempts.note_problem(problem.id)
                command["careful"] = self.attempts.careful(problem.id)
            child.channel.send(command)
            self._talk.handed()
            if self.attempts is not None:
                self.attempts.sync()  # while the worker loads
            answer = self._answer(_QUIET_LIMIT_S, "loaded", "refused")
        except ChannelClosed as closed:
            died = self._death(closed)
            raise _Died("crash", f"the worker {died.detail} while it prepared the problem", None) from None
        if answer is None:
            self._drop()
            raise _Died("timeout", "the worker did not finish preparing the problem", None)
        if "refused" in answer:
            raise _Refused(answer["refused"])
        self._loaded = problem

    def _probe(self) -> None:
        """Run kernels that were good before, each in a second worker when it fails in the first: the device
        is lost when none of them is good any more. One alone may be to blame itself."""
        failure: str | None = None
        for good in tuple(self._good):
            failure = self._try_good(*good)
            if failure is not None:
                self._drop()
                failure = self._try_good(*good)
            if failure is None:
                break
            self._drop()
            self._distrust(good[1])
        if failure is not None:
            raise _Lost(f"a kernel that was good before {failure}")
        self._suspect = False

    def _trust(self, problem: Problem, binary: Path) -> None:
        self._good = [(problem, binary), *(good for good in self._good if good[1] != binary)][:2]

    def _distrust(self, binary: Path) -> None:
        """A kernel that has just failed must not be what the device is judged by, if there is another."""
        self._good = [good for good in self._good if good[1] != binary] or self._good

    def _try_good(self, problem: Problem, binary: Path) -> str | None:
        """What is wrong with the kernel that was good before, or None."""
        try:
            self._load(problem)
            self._send({"do": "run", "id": _PROBE, "binary": str(binary), "samples": False}, [_PROBE])
            answer = self._next_result(problem)
            if answer["dirty"]:
                self._drop()
        except (_Died, _Refused) as error:
            return f"now fails: {error}"
        return (
            None if answer["status"] in ("ok", "noisy") else f"is now {answer['status']}: {answer['detail']}"
        )

    def _send(self, command: Message, identities: Sequence[int]) -> None:
        """Hand the worker something that it answers with results."""
        assert self._child is not None
        tokens = {identity: secrets.token_hex(8) for identity in identities}
        if command["do"] == "final":
            command = command | {"runs": [run | {"token": tokens[run["id"]]} for run in command["runs"]]}
        else:
            (command["token"],) = tokens.values()
        # A worker that is dead may have left results to read, and which kernel it died of is among them:
        # its death shows after the last of them.
        with suppress(ChannelClosed):
            self._child.channel.send(command)
        self._talk.handed()
        self._talk.expect(tokens, interleaved=command["do"] == "final")

    def _next_result(self, problem: Problem) -> Message:
        """The next finished kernel. Raises _Died when the worker dies or a kernel does not come back, and
        _Lost when the worker does not come to a kernel."""
        assert self._child is not None
        limit = self.settings.timeout_s or (
            self.target.timeout_s(problem) + _BUDGETS_AT_MOST * self.settings.timing.budget_ms / 1e3
        )
        quiet = _QUIET_LIMIT_S
        while True:
            try:
                if self._talk.running is None:
                    message = self._receive_while_idle(quiet)
                else:
                    left = self._since + limit - time.monotonic()
                    message = self._child.channel.receive(max(0.0, left))
                if message is None:
                    raise self._silence(limit, missed=quiet < _QUIET_LIMIT_S)
                message = checked(message)
                quiet = _QUIET_LIMIT_S
                if "began" in message:
                    self._talk.began(message)
                    # By our clock: while nobody read, the worker may have waited for room in the pipe.
                    self._since = time.monotonic()
                elif "done" in message:
                    self._talk.done(message)
                elif "settled" in message:
                    result = self._talk.settled(message)
                    self._unexplained = 0
                    self.kernel_seconds += result["kernel_seconds"]
                    return result
                elif "resting" in message:
                    if self._talk.resting(message):
                        quiet = _STOLEN_S
                else:
                    raise ChannelGarbled
            except ChannelClosed as closed:
                raise self._death(closed) from None

    def _silence(self, limit: float, *, missed: bool) -> _Died | _Lost:
        assert self._child is not None
        if self._child.ended:
            # Something that it started holds its pipe open, or its end would have shown by itself.
            return self._death(ChannelClosed())
        if missed:
            return self._death(ChannelGarbled())
        running = self._talk.running
        if running is None:
            self._drop()
            return _Lost(f"the worker waited {_QUIET_LIMIT_S:g} s for the device")
        died = _Died("timeout", self._child.with_output(f"no result after {limit:g} s"), running)
        self.kernel_seconds += limit
        self._drop()
        return died

    def _death(self, closed: ChannelClosed) -> _Died:
        assert self._child is not None
        job = self._talk.running
        if job is not None:
            self.kernel_seconds += time.monotonic() - self._since
        status = "crash"
        if isinstance(closed, ChannelGarbled):
            detail = self._child.with_output("wrote into the pipe between worker and harness")
        else:
            detail = self._child.death()
            if self._child.stopped_the_harness:
                status = "timeout"
        self._drop()
        self._suspect = True
        self._unexplained += job is None
        return _Died(status, detail, job)

    # ---- a caller's own data ------------------------------------------------------------------

    def apply(self, problem: Problem, binary: Path, data: DataFiles) -> Applied:
        """Run a kernel once on a caller's data; what becomes of it, its crash and its time limit included.

        Not while a sweep is under way. Raises TargetError when no worker can be had.
        """
        assert not self._talk.open, "a sweep is under way"
        for _ in range(_MOST_UNEXPLAINED_DEATHS):
            try:
                if self._lost is not None:
                    raise _Lost(self._lost)
                if self._child is None:
                    self._start()
                self._next_id += 1
                files = {"first": str(data.first), "second": str(data.second), "out": str(data.out)}
                command = {"do": "apply", "id": self._next_id, "binary": str(binary), **files}
                self._send(command | {"problem": problem.as_row()}, [self._next_id])
                answer = self._next_result(problem)
            except _Lost as lost:
                raise TargetError(f"target {self.target.name} cannot run anything: {lost}") from None
            except _Died as died:
                if died.job_id is None:
                    continue
                return Applied(died.status, str(died.detail))
            if answer["processes"]:
                self._drop()
                return Applied("crash", _LEFT_BEHIND.format(answer["processes"]))
            if answer["tainted"] or answer["dirty"]:
                self._drop()
            return Applied(answer["status"], answer["detail"])
        raise TargetError(f"target {self.target.name}: the worker died again and again before the kernel ran")

    # ---- one problem ------------------------------------------------------------------------

    def sweep(
        self,
        problem: Problem,
        kernels: Sequence[Kernel],
        known: Sequence[Measurement] = (),
        *,
        picks: Collection[Kernel] = (),
        keep_samples: bool = False,
        finals: bool = True,
    ) -> Generator[Measurement, None, None]:
        """Measure every kernel once, then the leaders again; yields as results come in.

        known: measurements of the same problem from before (a resumed run); they are not made again, but
        their kernels take part in the choice of leaders. picks: kernels that are measured again with the
        leaders unless they are far behind, so that a pick and its oracle are compared fairly.
        keep_samples: whether measurements carry every sample. finals: False leaves the leaders for a later
        sweep. Raises BuildError when the build folder cannot be used.
        """
        swept = [m for m in known if m.round < ROUND_FINAL]
        done_finally = {m.kernel for m in known if m.round >= ROUND_FINAL}
        waiting: deque[tuple[Kernel, Future[BuildResult]]] = deque()
        for kernel in kernels:
            reason = self.target.refusal(kernel, problem)
            if reason is None:
                waiting.append((kernel, self.target.build(kernel)))
            else:
                yield Measurement(problem, kernel, "unsupported", reason)
        try:
            for measurement in self._sweep_once(problem, waiting, keep_samples):
                swept.append(measurement)
                yield measurement
            if finals:
                yield from self._final_round(problem, swept, picks, done_finally, keep_samples)
        finally:
            self._first_failures.clear()
            if self._talk.open:
                # Left in the middle: the results still to come would be taken for another sweep's.
                self._drop()

    def _sweep_once(
        self,
        problem: Problem,
        waiting: deque[tuple[Kernel, Future[BuildResult]]],
        keep_samples: bool,
    ) -> Iterator[Measurement]:
        jobs: dict[int, _Job] = {}
        while waiting or jobs:
            try:
                yield from self._feed(problem, waiting, jobs, keep_samples)
                if not jobs:
                    continue
                answer = self._next_result(problem)
            except _Refused as refused:
                yield from self._give_up(problem, waiting, jobs, "unsupported", str(refused))
                return
            except _Lost as lost:
                self._lost = str(lost)
                yield from self._give_up(problem, waiting, jobs, "device_lost", self._lost)
                return
            except _Died as died:
                culprit = jobs.pop(died.job_id, None) if died.job_id is not None else None
                self._suspect = True
                self._requeue(waiting, jobs)
                if culprit is not None:
                    self._distrust(culprit.binary)
                    failed = Measurement(problem, culprit.kernel, died.status, died.detail)
                    if died.may_be_others and self._may_try_again(culprit, failed):
                        self._try_again(culprit, failed, waiting)
                    else:
                        yield failed
                continue
            job = jobs.pop(answer["done"])
            measurement = self._measurement(problem, job.kernel, answer)
            if answer["processes"]:
                detail = _LEFT_BEHIND.format(answer["processes"])
                measurement = Measurement(problem, job.kernel, "crash", detail)
            if "inputs" in answer["dirty"] and (measurement.ok or job.alone):
                measurement = Measurement(problem, job.kernel, "wrong", "changed its inputs")
            if measurement.ok:
                self._trust(problem, job.binary)
            if answer.get("tainted") or answer["dirty"]:
                self._requeue(waiting, jobs)
                self._drop()
            others = answer.get("again") or (
                measurement.status in ("wrong", "flaky") and "inputs" in answer["dirty"]
            )
            if others and self._may_try_again(job, measurement):
                self._requeue(waiting, jobs)
                self._drop()
                self._try_again(job, measurement, waiting)
                continue
            first = self._first_failures.pop(job.kernel, None)
            if first is not None and measurement.ok:
                note = f"failed once in a worker that other kernels had used: {first.detail}"
                measurement = replace(measurement, detail=note)
            yield measurement

    def _may_try_again(self, job: _Job, failed: Measurement) -> bool:
        """Whether the failure may be another kernel's doing, or the worker's, and is the first one."""
        if self._first_failures.pop(job.kernel, None) is not None:
            return False
        return not (job.alone and failed.status == "crash")

    def _try_again(
        self, job: _Job, failed: Measurement, waiting: deque[tuple[Kernel, Future[BuildResult]]]
    ) -> None:
        """Next, and alone in a new worker."""
        self._first_failures[job.kernel] = failed
        waiting.appendleft((job.kernel, self.target.build(job.kernel)))

    def _feed(
        self,
        problem: Problem,
        waiting: deque[tuple[Kernel, Future[BuildResult]]],
        jobs: dict[int, _Job],
        keep_samples: bool,
    ) -> Iterator[Measurement]:
        """Hand built kernels to the worker, in the order in which builds finish; yields build errors."""
        if waiting and not jobs:
            wait([future for _, future in waiting], return_when=FIRST_COMPLETED)
        not_built: list[tuple[Kernel, Future[BuildResult]]] = []
        try:
            while waiting and len(jobs) < _WINDOW:
                kernel, future = waiting[0]
                if not future.done():
                    not_built.append(waiting.popleft())
                    continue
                result = future.result()
                if result.binary is None:
                    waiting.popleft()
                    # A compiler that was killed says nothing of the kernel: a status that a resumed run,
                    # or the next session, does not take for an answer.
                    status = "device_lost" if result.interrupted else "build_error"
                    yield Measurement(problem, kernel, status, shortened(result.log, _LOG_CHARACTERS))
                    continue
                second_try = kernel in self._first_failures
                if second_try and jobs:
                    break
                if second_try and self._used:
                    self._drop()
                self._ready(problem)
                self._next_id += 1
                path = result.binary.path
                command = {"do": "run", "id": self._next_id, "binary": str(path), "samples": keep_samples}
                command["kernel"] = kernel.name
                waiting.popleft()
                self._send(command, [self._next_id])
                jobs[self._next_id] = _Job(kernel, path, alone=not self._used)
                self._used = True
                if second_try:
                    break
        finally:
            waiting.extendleft(reversed(not_built))

    def _requeue(self, waiting: deque[tuple[Kernel, Future[BuildResult]]], jobs: dict[int, _Job]) -> None:
        for identity in sorted(jobs, reverse=True):
            kernel = jobs.pop(identity).kernel
            waiting.appendleft((kernel, self.target.build(kernel)))

    def _give_up(
        self,
        problem: Problem,
        waiting: deque[tuple[Kernel, Future[BuildResult]]],
        jobs: dict[int, _Job],
        status: str,
        detail: str,
    ) -> Iterator[Measurement]:
        self._requeue(waiting, jobs)
        while waiting:
            kernel = waiting.popleft()[0]
            first = self._first_failures.pop(kernel, None)
            yield first if first is not None else Measurement(problem, kernel, status, detail)

    def _measurement(self, problem: Problem, kernel: Kernel, answer: Message) -> Measurement:
        values = {name: answer[name] for name in _ANSWER_FIELDS if name in answer}
        if "state" in answer:
            values["state"] = DeviceState(**answer["state"])
        return Measurement(problem, kernel, **values, sample_ms=tuple(answer.get("sample_ms", ())))

    # ---- the leaders, again -----------------------------------------------------------------

    def _final_round(
        self,
        problem: Problem,
        swept: list[Measurement],
        picks: Collection[Kernel],
        done: set[Kernel],
        keep_samples: bool,
    ) -> Iterator[Measurement]:
        leaders = [m for m in self._leaders(swept, picks) if m.kernel not in done]
        if len(leaders) + len(done) < 2 and not any(m.status == "noisy" for m in leaders):
            return
        yield from self._in_turn(problem, leaders, ROUND_FINAL, keep_samples)

    def remeasure(
        self, problem: Problem, timed: Sequence[Measurement], round_: int
    ) -> Generator[Measurement, None, None]:
        """Time kernels of earlier measurements again, in turn, in a worker process of its own; yields rows of
        that round. What fails now has its status; where the device cannot be had, nothing comes."""
        self._drop()
        try:
            yield from self._in_turn(problem, list(timed), round_, keep_samples=False)
        finally:
            if self._talk.open:
                self._drop()

    def _in_turn(
        self, problem: Problem, leaders: list[Measurement], round_: int, keep_samples: bool
    ) -> Iterator[Measurement]:
        while leaders:
            command, jobs = self._final_command(leaders)
            command["samples"] = keep_samples
            try:
                self._ready(problem)
                self._send(command, list(jobs))
                while jobs:
                    answer = self._next_result(problem)
                    leader = jobs.pop(answer["done"])
                    as_checked = {**answer, "check": leader.check, "check_points": leader.check_points}
                    final = self._measurement(problem, leader.kernel, as_checked)
                    leaders.remove(leader)
                    if answer["dirty"] and not jobs:
                        self._drop()
                    yield replace(final, round=round_)
                return
            except _Refused:
                return
            except _Lost as lost:
                self._lost = str(lost)
                return
            except _Died as died:
                self._suspect = True
                culprit = jobs.get(died.job_id) if died.job_id is not None else None
                if culprit is not None:
                    leaders.remove(culprit)
                    built = self.target.build(culprit.kernel).result()
                    if built.binary is not None:
                        self._distrust(built.binary.path)
                    yield Measurement(problem, culprit.kernel, died.status, died.detail, round_)

    def _final_command(self, leaders: Sequence[Measurement]) -> tuple[Message, dict[int, Measurement]]:
        """What the worker is told, and the leader of each identity in it."""
        total_ms = sum(m.latency_ms for m in leaders)
        passes = max(1, min(self.settings.final_passes, int(self.settings.final_total_ms / total_ms)))
        runs: list[Message] = []
        jobs: dict[int, Measurement] = {}
        for leader in leaders:
            built = self.target.build(leader.kernel).result()
            if built.binary is None:
                continue
            self._next_id += 1
            jobs[self._next_id] = leader
            # Of a noisy one a single sample a pass would prove nothing.
            least = 2 if leader.status == "noisy" else 1
            most = self.settings.final_samples
            count = max(least, min(most, int(self.settings.final_budget_ms / leader.latency_ms)))
            runs.append(
                {
                    "id": self._next_id,
                    "kernel": leader.kernel.name,
                    "binary": str(built.binary.path),
                    "count": count,
                }
            )
        doubtful = [identity for identity, leader in jobs.items() if leader.status == "noisy"]
        return {"do": "final", "runs": runs, "passes": passes, "doubtful": doubtful}, jobs

    def _leaders(self, swept: list[Measurement], picks: Collection[Kernel]) -> list[Measurement]:
        """The best, picks that are not far behind, and whatever was noisy: it has a second chance."""
        ranked = sorted((m for m in swept if m.ok), key=lambda m: (m.latency_ms, m.kernel.name))
        noisy = sorted((m for m in swept if m.status == "noisy"), key=lambda m: m.latency_min_ms)
        noisy = noisy[: self.settings.max_noisy]
        if not ranked:
            return noisy
        limit = ranked[0].latency_ms * (1 + self.settings.leaders_within)
        near = [m for m in ranked if m.latency_ms <= limit]
        leaders = (near if len(near) > 1 else ranked[:2])[: self.settings.max_leaders]
        far = ranked[0].latency_ms * _FAR_BEHIND
        picked = [m for m in ranked if m.kernel in picks and m.latency_ms <= far and m not in leaders]
        return leaders + picked + noisy
