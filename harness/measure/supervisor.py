"""The parent's side of measuring: feeds a worker, takes its results, survives its deaths.

A kernel that kills the worker is a `crash`, one that does not come back a `timeout`; the others go on in
a new worker. After such a death a kernel known to be good runs first, so that a device that is gone is
seen at once and not blamed on every later kernel.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import TargetError
from harness.kernel import GroupedConvKernel
from harness.measure.child import Child
from harness.measure.measurement import Measurement
from harness.measure.protocol import ChannelClosed, Message
from harness.measure.timing import TimingPlan
from harness.problem import GroupedConvProblem
from harness.record.schema import ROUND_FINAL
from harness.target.base import DeviceInfo, Target

if TYPE_CHECKING:
    from harness.build.builder import BuildResult

_WINDOW = 8
"""Kernels handed to the worker ahead of their turn, so that it never waits for the parent."""
_QUIET_LIMIT_S = 1800.0
"""How long a worker may wait for the device before its silence counts as a fault."""
_PROBE = -1


@dataclass(frozen=True)
class SweepSettings:
    """How a problem is measured.

    timeout_s: limit for one kernel, or None for the target's own. leaders_within: kernels at most this
    much slower than the best (a fraction) are measured again, at most max_leaders of them, in final_passes
    interleaved passes of final_budget_ms each, or fewer for long kernels (final_total_ms).
    """

    timing: TimingPlan = field(default_factory=TimingPlan)
    seed: int = 20260
    timeout_s: float | None = None
    leaders_within: float = 0.10
    max_leaders: int = 6
    final_passes: int = 5
    final_budget_ms: float = 4.0
    final_total_ms: float = 2000.0


@dataclass
class _Job:
    kernel: GroupedConvKernel
    binary: Path


class _Lost(Exception):
    """The device does not answer any more."""


class _Refused(Exception):
    """The device cannot take the problem."""


class _Died(Exception):
    """The worker died or was killed: status and detail for the kernel that ran."""

    def __init__(self, status: str, detail: str, job_id: int | None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.job_id = status, detail, job_id


class Supervisor:
    """Owns the worker of one device. Not thread-safe; close it."""

    def __init__(self, target: Target, settings: SweepSettings, journals: Path | None = None) -> None:
        self.target = target
        self.settings = settings
        self.device: DeviceInfo | None = None
        self.kernel_seconds = 0.0
        self._journals = journals
        self._child: Child | None = None
        self._loaded: GroupedConvProblem | None = None
        self._good: tuple[GroupedConvProblem, Path] | None = None
        self._suspect = False
        self._lost: str | None = None
        self._next_id = 0
        self._running: tuple[int, float] | None = None

    # ---- the worker's life ------------------------------------------------------------------

    def open(self) -> DeviceInfo:
        """Start the worker and open the device. Raises TargetError when that fails."""
        if self._child is None:
            try:
                self._start()
            except _Lost as error:
                raise TargetError(f"target {self.target.name} cannot be opened: {error}") from None
        assert self.device is not None
        return self.device

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        if self._child is not None:
            if self._running is None:
                self._child.quit()
            else:
                self._child.kill()
        self._child = self._loaded = self._running = None

    @property
    def worker_pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def _start(self) -> None:
        self._child = Child(self._journals)
        self._loaded = self._running = None
        try:
            self._child.channel.send(
                {
                    "do": "open",
                    "device_module": self.target.device_module,
                    "timing": asdict(self.settings.timing),
                }
            )
            answer = self._child.channel.receive(120.0)
        except ChannelClosed:
            death = self._child.death()
            self._drop(kill=True)
            raise _Lost(f"the worker {death}") from None
        if answer is None or "opened" not in answer:
            self._drop(kill=True)
            raise _Lost(answer["failed"] if answer else "no answer within 120 s")
        self.device = DeviceInfo(**answer["opened"])

    def _drop(self, *, kill: bool) -> None:
        if self._child is not None and kill:
            self._child.kill()
        self._child = self._loaded = self._running = None

    def _ready(self, problem: GroupedConvProblem) -> Child:
        """A worker with the problem loaded. Raises _Refused, _Lost, or _Died while loading."""
        if self._lost is not None:
            raise _Lost(self._lost)
        if self._child is None:
            self._start()
        if self._suspect:
            self._probe()
        self._load(problem)
        assert self._child is not None
        return self._child

    def _load(self, problem: GroupedConvProblem) -> None:
        assert self._child is not None
        if self._loaded == problem:
            return
        self._loaded = None
        try:
            self._child.channel.send({"do": "load", "problem": problem.as_row(), "seed": self.settings.seed})
            answer = self._child.channel.receive(_QUIET_LIMIT_S)
        except ChannelClosed:
            death = self._child.death()
            self._drop(kill=True)
            raise _Lost(f"the worker {death} while it prepared the problem") from None
        if answer is None:
            self._drop(kill=True)
            raise _Lost("the worker did not finish preparing the problem")
        if "refused" in answer:
            raise _Refused(answer["refused"])
        self._loaded = problem

    def _probe(self) -> None:
        """Run a kernel that was good before. If it fails now, the device is lost."""
        assert self._child is not None
        if self._good is not None:
            problem, binary = self._good
            try:
                self._load(problem)
                self._send_run(_PROBE, binary)
                answer = self._next_result(problem)
            except (_Died, _Refused) as error:
                raise _Lost(f"a kernel that was good before now fails: {error}") from None
            if answer["status"] not in ("ok", "noisy"):
                raise _Lost(f"a kernel that was good before is now {answer['status']}: {answer['detail']}")
        self._suspect = False

    def _send_run(self, identity: int, binary: Path) -> None:
        assert self._child is not None
        try:
            self._child.channel.send({"do": "run", "id": identity, "binary": str(binary)})
        except ChannelClosed:
            raise self._death() from None

    def _next_result(self, problem: GroupedConvProblem) -> Message:
        """The next finished kernel. Raises _Died when the worker dies or a kernel does not come back."""
        assert self._child is not None
        limit = self.settings.timeout_s or self.target.timeout_s(problem)
        while True:
            left = _QUIET_LIMIT_S if self._running is None else self._running[1] + limit - time.monotonic()
            try:
                message = self._child.channel.receive(max(0.0, left))
            except ChannelClosed:
                raise self._death() from None
            if message is None:
                job = self._running[0] if self._running else None
                self._drop(kill=True)
                raise _Died("timeout", f"no result after {limit:g} s", job)
            if "began" in message:
                self._note_finished()
                self._running = (message["began"], message["at"])
            elif "done" in message:
                self._note_finished()
                return message

    def _note_finished(self) -> None:
        if self._running is not None:
            self.kernel_seconds += time.monotonic() - self._running[1]
        self._running = None

    def _death(self) -> _Died:
        assert self._child is not None
        job = self._running[0] if self._running else None
        died = _Died("crash", self._child.death(), job)
        self._drop(kill=True)
        return died

    # ---- one problem ------------------------------------------------------------------------

    def sweep(
        self,
        problem: GroupedConvProblem,
        kernels: Sequence[GroupedConvKernel],
        known: Sequence[Measurement] = (),
    ) -> Iterator[Measurement]:
        """Measure every kernel once, then the leaders again; yields as results come in.

        known: measurements of the same problem from before (a resumed run); they are not made again, but
        their kernels take part in the choice of leaders.
        """
        swept = [m for m in known if m.round != ROUND_FINAL]
        done_finally = {m.kernel for m in known if m.round == ROUND_FINAL}
        waiting: deque[tuple[GroupedConvKernel, Future[BuildResult]]] = deque()
        for kernel in kernels:
            reason = self.target.refusal(kernel, problem)
            if reason is None:
                waiting.append((kernel, self.target.build(kernel)))
            else:
                yield Measurement(problem, kernel, "unsupported", reason)
        for measurement in self._sweep_once(problem, waiting):
            swept.append(measurement)
            yield measurement
        yield from self._final_round(problem, swept, done_finally)

    def _sweep_once(
        self, problem: GroupedConvProblem, waiting: deque[tuple[GroupedConvKernel, Future[BuildResult]]]
    ) -> Iterator[Measurement]:
        jobs: dict[int, _Job] = {}
        while waiting or jobs:
            try:
                yield from self._feed(problem, waiting, jobs)
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
                culprit = self._blame(died, waiting, jobs)
                if culprit is not None:
                    yield Measurement(problem, culprit.kernel, died.status, died.detail)
                continue
            job = jobs.pop(answer["done"])
            measurement = self._measurement(problem, job, answer)
            if measurement.ok:
                self._good = (problem, job.binary)
            if answer.get("tainted"):
                self._requeue(waiting, jobs)
                self._drop(kill=True)
            yield measurement

    def _feed(
        self,
        problem: GroupedConvProblem,
        waiting: deque[tuple[GroupedConvKernel, Future[BuildResult]]],
        jobs: dict[int, _Job],
    ) -> Iterator[Measurement]:
        """Hand built kernels to the worker, in the order in which builds finish; yields build errors."""
        if waiting and not jobs:
            wait([future for _, future in waiting], return_when=FIRST_COMPLETED)
        not_built: deque[tuple[GroupedConvKernel, Future[BuildResult]]] = deque()
        while waiting and len(jobs) < _WINDOW:
            kernel, future = waiting.popleft()
            if not future.done():
                not_built.append((kernel, future))
                continue
            result = future.result()
            if result.binary is None:
                yield Measurement(problem, kernel, "build_error", result.log.strip()[-2000:])
                continue
            waiting.appendleft((kernel, future))  # until it is sent: a death on the way loses nothing
            self._ready(problem)
            self._next_id += 1
            self._send_run(self._next_id, result.binary.path)
            waiting.popleft()
            jobs[self._next_id] = _Job(kernel, result.binary.path)
        waiting.extendleft(reversed(not_built))

    def _blame(
        self,
        died: _Died,
        waiting: deque[tuple[GroupedConvKernel, Future[BuildResult]]],
        jobs: dict[int, _Job],
    ) -> _Job | None:
        """Take the kernel that ran out of the jobs; the others go back to waiting."""
        self._suspect = True
        culprit = jobs.pop(died.job_id, None) if died.job_id is not None else None
        if culprit is None and jobs:
            # The worker died between two kernels: whoever was next in line is all that can be named.
            culprit = jobs.pop(min(jobs))
        self._requeue(waiting, jobs)
        return culprit

    def _requeue(
        self, waiting: deque[tuple[GroupedConvKernel, Future[BuildResult]]], jobs: dict[int, _Job]
    ) -> None:
        for identity in sorted(jobs, reverse=True):
            kernel = jobs.pop(identity).kernel
            waiting.appendleft((kernel, self.target.build(kernel)))

    def _give_up(
        self,
        problem: GroupedConvProblem,
        waiting: deque[tuple[GroupedConvKernel, Future[BuildResult]]],
        jobs: dict[int, _Job],
        status: str,
        detail: str,
    ) -> Iterator[Measurement]:
        self._requeue(waiting, jobs)
        while waiting:
            yield Measurement(problem, waiting.popleft()[0], status, detail)

    def _measurement(self, problem: GroupedConvProblem, job: _Job, answer: Message) -> Measurement:
        names = (
            "status",
            "detail",
            "latency_ms",
            "latency_min_ms",
            "spread",
            "samples",
            "check",
            "check_points",
        )
        values = {name: answer[name] for name in names if name in answer}
        return Measurement(problem, job.kernel, **values, sample_ms=tuple(answer.get("sample_ms", ())))

    # ---- the leaders, again -----------------------------------------------------------------

    def _final_round(
        self, problem: GroupedConvProblem, swept: list[Measurement], done: set[GroupedConvKernel]
    ) -> Iterator[Measurement]:
        leaders = [m for m in self._leaders(swept) if m.kernel not in done]
        if len(leaders) + len(done) < 2:
            return
        while leaders:
            total = sum(m.latency_ms for m in leaders)
            passes = max(1, min(self.settings.final_passes, int(self.settings.final_total_ms / total)))
            runs, jobs = [], {}
            for leader in leaders:
                built = self.target.build(leader.kernel).result()
                if built.binary is None:
                    continue
                self._next_id += 1
                jobs[self._next_id] = leader
                count = max(1, min(100, int(self.settings.final_budget_ms / leader.latency_ms)))
                runs.append({"id": self._next_id, "binary": str(built.binary.path), "count": count})
            try:
                child = self._ready(problem)
                child.channel.send({"do": "final", "runs": runs, "passes": passes})
                for _ in runs:
                    answer = self._next_result(problem)
                    leader = jobs[answer["done"]]
                    checked = {**answer, "check": leader.check, "check_points": leader.check_points}
                    final = self._measurement(problem, _Job(leader.kernel, Path()), checked)
                    leaders.remove(leader)
                    yield replace(final, round=ROUND_FINAL)
                return
            except (_Refused, _Lost, ChannelClosed):
                return
            except _Died as died:
                self._suspect = True
                culprit = jobs.get(died.job_id) if died.job_id is not None else None
                if culprit is None:
                    return
                leaders.remove(culprit)
                yield Measurement(problem, culprit.kernel, died.status, died.detail, ROUND_FINAL)

    def _leaders(self, swept: list[Measurement]) -> list[Measurement]:
        ranked = sorted((m for m in swept if m.ok), key=lambda m: (m.latency_ms, m.kernel.name))
        if not ranked:
            return []
        limit = ranked[0].latency_ms * (1 + self.settings.leaders_within)
        near = [m for m in ranked if m.latency_ms <= limit]
        return (near if len(near) > 1 else ranked[:2])[: self.settings.max_leaders]
