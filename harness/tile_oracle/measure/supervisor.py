"""The parent's side of measuring: feeds a worker, takes its results, and survives its crashes.

A kernel that kills the worker is a `crash`, one that does not return is a `timeout`; the others continue in a
new worker. After a crash or timeout, a known-good kernel runs first, so that a lost device is detected at
once and not blamed on every later kernel. A worker that dies while no kernel runs is replaced, and no kernel
is blamed.

No kernel is blamed for another one. A worker that a kernel has changed is replaced. If a kernel fails in a
worker that ran other kernels, and those may be the cause, it gets a second try in a new worker.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tile_oracle.compiling.compiler_message import shortened
from tile_oracle.kernel import Kernel
from tile_oracle.measure.answer import has_spoilt_its_worker, measurement_of, misbehaviour
from tile_oracle.measure.commands import Final, Run, Turn
from tile_oracle.measure.containment import Containment
from tile_oracle.measure.kernel_order import KernelOrder
from tile_oracle.measure.leaders import (
    ALWAYS_IN_FULL,
    choose_leaders,
    final_passes,
    has_lost_ms,
    leaders_left,
    may_win_yet,
    samples_a_pass,
    standing,
)
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.row import row_of
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.measure.worker_link import Died, Lost, Refused, WorkerLink
from tile_oracle.problem import Problem
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.targets.target import Target

_WINDOW = 8
"""Number of kernels sent to the worker in advance, so that it never waits for the parent."""
_LOG_CHARACTERS = 2000
"""Length limit of a compiler's log in a record's detail."""


@dataclass
class _Job:
    kernel: Kernel
    binary: Path
    alone: bool
    """No other kernel has run in its worker, except one known to be good."""


@dataclass
class _Sweep:
    """The kernels of a problem that wait for the worker, and those that it was sent, by identity."""

    problem: Problem
    waiting: deque[Kernel]
    jobs: dict[int, _Job] = field(default_factory=dict)


class Supervisor(WorkerLink):
    """Measures with the worker of one device."""

    def __init__(
        self,
        target: Target,
        settings: SweepSettings,
        journals: Path | None = None,
        containment: Containment | None = None,
    ) -> None:
        super().__init__(target, settings, journals, containment)
        self._order = KernelOrder()
        self._build_wait_s = 0.0
        self._fastest_ms: list[float] = []
        """The fastest known times of the problem that is swept, sorted."""
        self._wanted: Callable[[Kernel], bool] | None = None
        self._all_checks: set[Kernel] = set()
        """The kernels that pass all checks, even if they have lost."""
        self._first_failures: dict[Kernel, Measurement] = {}
        """First failures of kernels that wait for a second try, alone in a new worker."""

    @contextmanager
    def waiting_for_compilers(self) -> Iterator[None]:
        """Counts the time of the block as one in which the worker has nothing to run."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._build_wait_s += time.monotonic() - began

    def row_of(self, measurement: Measurement) -> dict[str, Any]:
        """Returns the row of a measurement that was made here, without the run and the time."""
        waited_s, self._build_wait_s = self._build_wait_s, 0.0
        row = row_of(measurement, self.target, self.settings, self.device)
        return row | {"build_wait_ms": round(1000.0 * waited_s, 3)}

    # ---- one problem ------------------------------------------------------------------------

    def sweep(
        self,
        problem: Problem,
        kernels: Sequence[Kernel],
        known: Sequence[Measurement] = (),
        *,
        picks: Collection[Kernel] = (),
        finals: bool = True,
        wanted: Callable[[Kernel], bool] | None = None,
    ) -> Generator[Measurement, None, None]:
        """Measures every kernel once and then the leaders again, yielding results as they come in.

        known: earlier measurements of the problem (from a resumed run). They are not repeated, but their
        kernels can become leaders.
        picks: kernels that are measured again with the leaders unless they are far behind, so that a pick and
        its oracle are compared fairly. They pass all checks, however slow they are.
        finals: False leaves the leaders to a later sweep. wanted: asked before a kernel is sent to the
        worker; a kernel that is not wanted any more has no result. Raises BuildError when the build folder
        cannot be used.
        """
        self._wanted, self._all_checks = wanted, set(picks)
        swept = [m for m in known if m.round < ROUND_FINAL]
        new: list[Measurement] = []
        self._fastest_ms = sorted(m.latency_ms for m in swept if m.ok)[:ALWAYS_IN_FULL]

        waiting = self._order.ordered(kernels) if self.settings.timing.sequential else kernels
        for kernel in waiting:
            self.target.build(kernel)
        try:
            for measurement in self._sweep_once(_Sweep(problem, deque(waiting))):
                new.append(measurement)
                yield measurement
            self._order.learn(new, swept)
            if finals:
                yield from self._finals(problem, [*known, *new], picks)
        finally:
            self._wanted = None
            self._first_failures.clear()
            if self.is_busy:
                # The sweep was abandoned: its outstanding results must not reach the next sweep.
                self.drop()

    def _finals(
        self, problem: Problem, known: list[Measurement], picks: Collection[Kernel]
    ) -> Iterator[Measurement]:
        """Yields the leaders again. Where the fastest kernels turn out to be no good, those that had lost to
        them alone are checked and timed in full in another round, and then the leaders again in one more."""
        round_, leaders = ROUND_FINAL, leaders_left(known, picks, self.settings)
        tried = set[Kernel]()
        while True:
            for measurement in self._times_in_turn(problem, leaders, round_):
                known.append(measurement)
                yield measurement
            again = [m.kernel for m in may_win_yet(known, self.settings) if m.kernel not in tried]
            if not again or self.lost:
                return
            tried |= set(again)
            self._all_checks |= tried
            round_ = max(m.round for m in known) + 1
            for measurement in self._sweep_once(_Sweep(problem, deque(again))):
                known.append(replace(measurement, round=round_))
                yield known[-1]
            round_, leaders = round_ + 1, choose_leaders(standing(known), picks, self.settings)

    def _sweep_once(self, sweep: _Sweep) -> Iterator[Measurement]:
        problem, jobs = sweep.problem, sweep.jobs
        while sweep.waiting or jobs:
            try:
                yield from self._feed(sweep)
                if not jobs:
                    continue
                answer = self.next_result(problem)
            except Refused as refused:
                yield from self._give_up(sweep, "unsupported", str(refused))
                return
            except Lost as lost:
                self.lost = str(lost)
                yield from self._give_up(sweep, "device_lost", self.lost)
                return
            except Died as died:
                culprit = jobs.pop(died.job_id, None) if died.job_id is not None else None
                self.suspect = True
                self._requeue(sweep)
                if culprit is not None:
                    self.distrust(culprit.binary)
                    failed = Measurement(problem, culprit.kernel, died.status, died.detail)
                    if died.may_be_others and self._may_try_again(culprit, failed):
                        self._try_again(sweep, culprit, failed)
                    else:
                        yield failed
                continue
            job = jobs.pop(answer["done"])
            measurement = measurement_of(problem, job.kernel, answer)
            if "inputs" in answer["dirty"] and (measurement.ok or job.alone):
                measurement = Measurement(problem, job.kernel, "wrong", "changed its inputs")
            if measurement.ok:
                self.trust(problem, job.binary)
                self._fastest_ms = sorted([*self._fastest_ms, measurement.latency_ms])[:ALWAYS_IN_FULL]
            if has_spoilt_its_worker(answer):
                self._requeue(sweep)
                self.drop()
            # Somebody outside may have moved the worker to other cores, for example.
            others = answer.get("again") or (
                measurement.status in ("wrong", "flaky") and ("inputs" in answer["dirty"] or answer["unfair"])
            )
            if others and self._may_try_again(job, measurement):
                self._requeue(sweep)
                self.drop()
                self._try_again(sweep, job, measurement)
                continue
            first = self._first_failures.pop(job.kernel, None)
            if first is not None and measurement.ok:
                note = f"failed once in a worker that other kernels had used: {first.detail}"
                measurement = replace(measurement, detail=note)
            yield measurement

    def _may_try_again(self, job: _Job, failed: Measurement) -> bool:
        """Returns whether this is the kernel's first failure and another kernel or the worker may be the
        cause."""
        if self._first_failures.pop(job.kernel, None) is not None:
            return False
        return not (job.alone and failed.status == "crash")

    def _try_again(self, sweep: _Sweep, job: _Job, failed: Measurement) -> None:
        """Puts the kernel at the front of the queue, to run alone in a new worker."""
        self._first_failures[job.kernel] = failed
        sweep.waiting.appendleft(job.kernel)

    def _feed(self, sweep: _Sweep) -> Iterator[Measurement]:
        """Sends kernels to the worker, once they are built; yields build errors."""
        problem, waiting, jobs = sweep.problem, sweep.waiting, sweep.jobs
        while waiting and len(jobs) < _WINDOW:
            kernel = waiting[0]
            if self._wanted is not None and not self._wanted(kernel):
                waiting.popleft()
                continue
            second_try, build = kernel in self._first_failures, self.target.build(kernel)
            if jobs and (second_try or not build.done()):
                return
            with self.waiting_for_compilers():
                result = build.result()
            if result.binary is None:
                waiting.popleft()
                # A killed compiler says nothing about the kernel. With this status, a resumed run or the
                # next session measures it again.
                status = "device_lost" if result.interrupted else "build_error"
                yield Measurement(problem, kernel, status, shortened(result.log, _LOG_CHARACTERS))
                continue
            if second_try and self.used:
                self.drop()
            self.ready(problem)
            identity = next(self.ids)
            path = result.binary.path
            waiting.popleft()
            best_ms = self._fastest_ms[0] if self._fastest_ms else None
            lost_ms = None if kernel in self._all_checks else has_lost_ms(self._fastest_ms, self.settings)
            self.live_worker.run(Run(identity, str(path), kernel.name, best_ms, lost_ms))
            jobs[identity] = _Job(kernel, path, alone=not self.used)
            self.used = True
            if second_try:
                return

    def _requeue(self, sweep: _Sweep) -> None:
        for identity in sorted(sweep.jobs, reverse=True):
            sweep.waiting.appendleft(sweep.jobs.pop(identity).kernel)

    def _give_up(self, sweep: _Sweep, status: str, detail: str) -> Iterator[Measurement]:
        self._requeue(sweep)
        while sweep.waiting:
            kernel = sweep.waiting.popleft()
            first = self._first_failures.pop(kernel, None)
            yield first if first is not None else Measurement(sweep.problem, kernel, status, detail)

    # ---- the leaders, again -----------------------------------------------------------------

    def remeasure(
        self, problem: Problem, timed: Sequence[Measurement], round_: int
    ) -> Generator[Measurement, None, None]:
        """Times measured kernels again, interleaved, in a new worker; yields measurements of round `round_`.

        A kernel that fails now is yielded with its status. Without a device, nothing is yielded.
        """
        self.drop()
        try:
            yield from self._times_in_turn(problem, list(timed), round_)
        finally:
            if self.is_busy:
                self.drop()

    def _times_in_turn(
        self, problem: Problem, leaders: list[Measurement], round_: int
    ) -> Iterator[Measurement]:
        """Times the leaders' kernels interleaved in one worker, so that conditions are equal; yields
        measurements of that round. If the worker dies in a kernel, the others continue in a new worker; if
        none can be started, the iteration ends."""
        groups = deque([leaders] if leaders else [])
        first: Measurement | None = None
        alone = False
        while groups:
            group = groups[0]
            if alone:
                self.drop()
            command, jobs = self._final_command(group)
            try:
                self.ready(problem)
                self.live_worker.run(command)
                while jobs:
                    answer = self.next_result(problem)
                    if misbehaviour(answer) is not None and len(command.runs) > 1:
                        # Nobody knows which of them it was: run each one again in its own worker.
                        groups, alone = deque([leader] for leader in group), True
                        break
                    leader = jobs.pop(answer["done"])
                    as_checked = {**answer, "check": leader.check, "check_points": leader.check_points}
                    if leader.is_censored and answer["status"] == "ok":  # it has not passed all checks
                        as_checked["at_least_ms"] = min(leader.at_least_ms, answer["latency_ms"])
                    final = measurement_of(problem, leader.kernel, as_checked)
                    group.remove(leader)
                    if has_spoilt_its_worker(answer) and not jobs:
                        self.drop()
                    yield replace(final, round=round_)
                else:
                    groups.popleft()
            except (Refused, Lost) as error:
                if isinstance(error, Lost):
                    self.lost = str(error)
                if first is not None and any(leader.kernel == first.kernel for leader in group):
                    yield first
                return
            except Died as died:
                self.suspect = True
                culprit = jobs.get(died.job_id) if died.job_id is not None else None
                if culprit is None:
                    continue
                if died.may_be_others and len(group) > 1:
                    # Another leader in the same worker may be the cause: run each one again in its own
                    # worker, this one first.
                    first = Measurement(problem, culprit.kernel, died.status, died.detail, round_)
                    group.sort(key=lambda leader: leader is not culprit)
                    groups, alone = deque([leader] for leader in group), True
                    continue
                group.remove(culprit)
                if not group:
                    groups.popleft()
                built = self.target.build(culprit.kernel).result()
                if built.binary is not None:
                    self.distrust(built.binary.path)
                yield Measurement(problem, culprit.kernel, died.status, died.detail, round_)

    def _final_command(self, leaders: Sequence[Measurement]) -> tuple[Final, dict[int, Measurement]]:
        """Returns the command for the worker, and identity -> leader for its runs."""
        runs: list[Turn] = []
        jobs: dict[int, Measurement] = {}
        for leader in leaders:
            built = self.target.build(leader.kernel).result()
            if built.binary is None:
                continue
            identity = next(self.ids)
            jobs[identity] = leader
            count = samples_a_pass(leader, self.settings)
            runs.append(Turn(identity, leader.kernel.name, str(built.binary.path), count))
        doubtful = [identity for identity, leader in jobs.items() if leader.status == "noisy"]
        passes = final_passes(leaders, self.settings)
        return Final(runs, passes, doubtful), jobs
