"""The driver gives devices work, takes their results, records them and answers questions.

The driver runs in a thread of its own, so that no device waits for the tests of the session; with the device
of this process it runs while a test waits. It records a sweep's row when it arrives, and the rows of a
problem's leaders all at once, because only times of one device in one go can be compared.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import count
from typing import Any

from tile_oracle.errors import DeviceMissingError, HarnessError, NotBegunError
from tile_oracle.kernel import Kernel
from tile_oracle.measure.assignments import Ended, Row, Work
from tile_oracle.measure.builds import Builds
from tile_oracle.measure.device_progress import DevicesProgress
from tile_oracle.measure.dispatcher import Assign, Blame, Dispatcher, Task, Withdraw
from tile_oracle.measure.engine import Engine, Event, Gone, Joined, Told
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.results import Results, not_run_again
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.problem import Problem
from tile_oracle.record.run import RunLog
from tile_oracle.record.schema import ROUND_FINAL

_TICK_S = 0.2
_NO_DEVICE_S = 60.0
"""How long a session without a usable device waits for one."""
_MOST_LOSSES = 3
"""Times that a device may be lost before it is not opened again."""

Picks = Callable[[Problem], Collection[Kernel]]
"""The kernels that are measured again with a problem's leaders."""


@dataclass(frozen=True)
class ProblemTask:
    """A problem and the kernels that a session wants of it. weight: expected time, in any unit. finals:
    whether the problem's leaders are measured again afterwards."""

    problem: Problem
    kernels: Sequence[Kernel]
    weight: float
    finals: bool = True


@dataclass
class _Problem:
    problem: Problem
    kernels: dict[str, Kernel]
    weight: float
    finals: bool = True
    labels: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Again:
    """Kernels that are timed again, as rows of a round."""

    problem: Problem
    timed: Sequence[Measurement]
    round: int


class Driver:
    """Runs devices until `abandon`. Only `start`, `measure`, `remeasure_all`, `wait` and `abandon` may be
    called from other threads; all raise what has ended the driver, a HarnessError."""

    def __init__(
        self,
        engine: Engine,
        builds: Builds,
        log: RunLog,
        picks: Callable[[str], Picks],
        row: Callable[[Measurement], Mapping[str, Any]],
        settings: SweepSettings,
        *,
        match: str = "",
        in_order: bool = False,
        deadline: float | None = None,
        split_s: float = 3.0,
        no_device_s: float = _NO_DEVICE_S,
        in_turn: bool = False,
    ) -> None:
        """picks: the kind of the devices -> the kernels that are measured again with a problem's leaders; is
        asked once, when the first device has joined. row: the row of a measurement that no device has made.

        in_turn: the engine measures in the caller's thread, and a problem begins when one of its pairs is
        asked for. match: the kind of the devices that are used, a name or a pattern with * and ?; "" for that
        of the first. in_order: problems begin in the order in which they are given, not the longest first.
        deadline: after this time on the monotonic clock no device is given a pair any more, and those that
        wait for a device are left.
        split_s: see Dispatcher."""
        self._engine, self._builds, self._log = engine, builds, log
        self._picks_for, self._row = picks, row
        self._match, self._deadline = match, deadline
        self._dispatcher = Dispatcher(in_order=in_order, split_s=split_s, ahead=deadline is None)
        self.kind = ""
        """The kind of the devices; "" before one is there."""
        self._no_device_s = no_device_s
        self._in_turn = in_turn
        self._later: dict[str, ProblemTask] = {}
        """The tasks of problems that begin when they are asked for, or when the device would wait for a
        compiler."""
        self._prepared = ""
        self._state = threading.Condition()
        self._results = Results(settings, log)
        self._picks: Picks | None = None
        self._resumed: list[ProblemTask] = []
        """Tasks of which at most picks are left, which are not known before a device has joined."""
        self._problems: dict[str, _Problem] = {}
        self._labels: dict[str, str] = {}
        self._rows: dict[int, list[Row]] = {}
        """Number of an assignment -> rows of leaders, until it ends."""
        self._lines: list[bytes] = []
        self._remote: set[str] = set()
        self._losses: dict[str, int] = {}
        self._last_why = ""
        self._again: dict[str, _Again] = {}
        """What is to be timed again, by label, until it was or was given up."""
        self._again_number: dict[int, str] = {}
        """Number of an assignment -> label."""
        self._numbers = count(1)
        self._asked: deque[tuple[Problem, Kernel]] = deque()
        self._stops = self._ends = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._usable_s = time.monotonic()
        self.progress = DevicesProgress()
        self.notes: list[str] = []

    # ---- for the session --------------------------------------------------------------------------------

    def start(self, tasks: Iterable[ProblemTask]) -> None:
        """Begins to measure, in a thread unless `in_turn`: then, after `wait`, also further kernels."""
        if self._in_turn:
            self._later = {task.problem.id: task for task in tasks}
            return
        self.plan(tasks)
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def plan(self, tasks: Iterable[ProblemTask]) -> None:
        """Takes the tasks. `start` does this, too; a caller that calls `step` itself calls only this."""
        for task in tasks:
            self._take_task(task)
        self._usable_s = time.monotonic()

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        """Returns the result of a pair's sweep, once it is there and a device has joined.

        Raises KernelError when the kernel is of another operation, direction, dtype or rank, NotBegunError
        for a pair that no device was given before the time was over."""
        with self._state:
            self._check()  # what could not be recorded is no result
            stops = self._is_over(time.monotonic())
            if not stops and (task := self._later.pop(problem.id, None)) is not None:
                self._take_task(task)
            if not stops and self._results.find(problem, kernel) is None:
                self._asked.append((problem, kernel))
            while (found := self._results.find(problem, kernel)) is None or self._picks is None:
                if found is None and self._stops and self._has_measured(problem.id):
                    raise NotBegunError("the time was over before a device was given the pair")
                self._wait(ahead=True)
            there = self._problems[problem.id]
            if self._in_turn and self._results.swept(problem.id).keys() >= there.kernels.keys():
                while not self._has_measured(problem.id):  # the leaders
                    self._wait()
                self._prepare_next()
            return found

    def _prepare_next(self) -> None:
        """While the tests of a measured problem end, the device prepares the next one."""
        upcoming = None if self._stops else next(iter(self._later.values()), None)
        if upcoming is not None and upcoming.problem.id != self._prepared and self._dispatcher.complete:
            self._prepared = upcoming.problem.id
            self._results.resume(upcoming.problem)
            if self._results.missing(upcoming.problem.id, upcoming.kernels):
                self._engine.prepare(upcoming.problem)

    def _wait(self, *, ahead: bool = False) -> None:
        """Waits for something to happen. ahead: rather than wait for a compiler in turn, begins a problem.
        Raises what has ended the driver."""
        if not self._in_turn:
            self._state.wait(1.0)
        else:
            idle = self._dispatcher.rests and not self._asked
            if idle and ahead and self._deadline is None and self._later:
                idle = False
                self._take_task(self._later.pop(next(iter(self._later))))
            try:
                self.step(self._engine.events(_TICK_S if idle else 0.0), time.monotonic())
            except Exception as error:
                self._error = error
        self._check()

    def wait(self) -> None:
        """Waits until everything that was asked for, and that may still begin, has been measured."""
        with self._state:
            while not self.is_complete():
                self._wait()

    def remeasure_all(
        self, asked: Sequence[tuple[Problem, Sequence[Measurement], int]], ends_s: float
    ) -> list[Problem]:
        """Times measured kernels of each job again as rows of its round, on as many devices as there are,
        until the monotonic time `ends_s`; a job that has begun is finished. Returns the problems that were
        measured."""
        jobs: dict[str, _Again] = {}
        with self._state:
            for one in asked:
                job = _Again(*one)
                self._results.resume(job.problem)
                self._problems.setdefault(job.problem.id, _Problem(job.problem, {}, 1.0))
                jobs[label := f"{job.problem.id} again {next(self._numbers)}"] = job
                self._again[label] = job
                self._dispatcher.add(Task(label, (), after_stop=True))
            while waits := self._again.keys() & jobs.keys():
                if time.monotonic() >= ends_s:
                    for label in waits:
                        if self._dispatcher.forget(label):
                            del self._again[label], jobs[label]
                self._wait()
            given_up = self._dispatcher.without_finals
            return [job.problem for label, job in jobs.items() if label not in given_up]

    def _has_measured(self, problem: str) -> bool:
        """Returns whether no device has a part of a problem, or will be given one."""
        there = self._problems.get(problem)
        return there is None or all(map(self._dispatcher.has_measured, there.labels))

    def _is_over(self, now: float) -> bool:
        """Returns whether the time is over."""
        self._stops |= self._deadline is not None and now >= self._deadline
        return self._stops

    def all_notes(self) -> list[str]:
        """Returns what the user must know about devices and kernels."""
        lost = [
            f"the leaders of {one} were not measured again: devices died"
            for one in self._dispatcher.without_finals
            if one in self._labels
        ]
        return [*self.notes, *lost, *self.progress.notes()]

    def abandon(self) -> None:
        """Ends all devices, whatever they are doing; what has arrived is recorded."""
        self._ends = True
        if self._thread is not None:
            self._thread.join()
        self._engine.close()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._ends:
            raise HarnessError("the session's devices were closed")

    # ---- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ends:
                self.step(self._engine.events(_TICK_S), time.monotonic())
        except BaseException as error:
            with self._state:
                self._error = error
                self._state.notify_all()

    def step(self, events: Sequence[Event], now: float) -> None:
        """Handles what has happened and gives orders. now: seconds on the monotonic clock."""
        with self._state:
            for event in events:
                self._handle(event)
            self._flush()
            self._take_asked()
            for built in self._builds.ready():
                self._dispatcher.built(*built)
            if self._is_over(now):
                self._dispatcher.stop()
            for order in self._dispatcher.orders(now):
                if isinstance(order, Assign):
                    self._assign(order)
                elif isinstance(order, Withdraw):
                    self._engine.withdraw(order.device, order.number, order.kernels)
                else:
                    self._blame(order)
            self._flush()
            for label in self._dispatcher.without_finals:
                self._again.pop(label, None)
            self._watch(now)
            self._state.notify_all()

    def is_complete(self) -> bool:
        """Returns whether everything that was asked for, and that may still begin, has been measured."""
        return self._dispatcher.complete and not self._resumed

    def _watch(self, now: float) -> None:
        """Ends a session that has work and no device to do it."""
        idle = not (self._resumed or self._dispatcher.has_work)
        if self._dispatcher.usable or idle or self.is_complete():
            self._usable_s = now
        elif now - self._usable_s > self._no_device_s:
            waits = self._engine.waiting() or self._last_why or "none has joined"
            raise DeviceMissingError(
                f"the fleet has had no usable device for {self._no_device_s:.0f} s ({waits}); what was "
                "measured is recorded: --resume continues"
            )

    # ---- events -----------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if isinstance(event, Told):
            for message in event.messages:
                if isinstance(message, Row):
                    self._take_row(event.device, message)
                else:
                    self._end(event.device, message)
        elif isinstance(event, Joined):
            self._join(event)
        else:
            self._leave(event)

    def _join(self, event: Joined) -> None:
        kind = event.opened.kind
        matches = not self._match or kind == self._match or fnmatchcase(kind, self._match)
        if not matches or kind != (self.kind or kind):
            why = f"is {kind}, not {self.kind if matches else self._match}"
            self._last_why = f"{event.device} {why}"
            self.progress.set_aside(event.device, kind, why)
            self._engine.drop(event.device, again=False)
            return
        self.kind = kind
        if event.remote:
            self._remote.add(event.device)
        self.progress.joined(event.device, event.opened)
        if self._picks is None:
            self._picks = cache(self._picks_for(kind))
        self._dispatcher.joined(event.device)
        resumed, self._resumed = self._resumed, []
        for task in resumed:
            self._take_task(task)

    def _leave(self, event: Gone) -> None:
        self._last_why = f"{event.device}: {event.why}"
        self.progress.gone(event.device, event.why)
        self._dispatcher.gone(event.device, died=event.died)

    def _take_row(self, device: str, row: Row) -> None:
        if row.result.round >= ROUND_FINAL:
            if self._dispatcher.takes_finals(device, row.number):
                self._rows.setdefault(row.number, []).append(row)
        elif self._dispatcher.finished(device, row.number, row.result.kernel.name):
            self._take(row)

    def _end(self, device: str, message: Ended) -> None:
        rows = self._rows.pop(message.number, [])
        if why := message.lost or message.failed:
            # It gets no more work, but may come back in a new process.
            self._losses[device] = self._losses.get(device, 0) + 1
            self._leave(Gone(device, why, died=False))
            self.progress.set_aside(device, "", why)
            self._engine.drop(device, again=self._losses[device] < _MOST_LOSSES)
        elif self._dispatcher.ended(device, message.number):
            for row in rows:
                self._take(row)
            if (label := self._again_number.get(message.number)) is not None:
                self._again.pop(label, None)

    def _take(self, row: Row) -> None:
        there, one = self._problems[row.result.problem.id], row.result
        # Not as many objects as rows, each with a problem and a kernel of its own.
        kernel = there.kernels.get(one.kernel.name, one.kernel)
        self._results.take(replace(one, problem=there.problem, kernel=kernel))
        self._lines.append(row.line)

    def _flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._log.append_lines(lines)

    # ---- tasks ------------------------------------------------------------------------------------------

    def _take_task(self, task: ProblemTask) -> None:
        """Begins a task unless nothing of it is left."""
        problem = task.problem
        there = self._problems.setdefault(problem.id, _Problem(problem, {}, task.weight))
        there.kernels |= {kernel.name: kernel for kernel in task.kernels}
        there.finals = task.finals
        self._results.resume(problem)
        missing = self._results.missing(problem.id, task.kernels)
        picks = () if self._picks is None else self._picks(problem)
        if not missing and not (task.finals and self._results.leaders_left(problem.id, picks)):
            if self._picks is None:
                self._resumed.append(task)
            return
        label = f"{problem.id} +{len(self._labels)}" if problem.id in self._labels else problem.id
        self._labels[label] = problem.id
        there.labels.append(label)
        unbuilt = self._builds.want(label, problem, task.kernels)
        names = [kernel.name for kernel in missing]
        self._dispatcher.add(Task(label, names, task.weight, unbuilt=unbuilt))

    def _take_asked(self) -> None:
        """Pairs that were not planned, which a test asks for."""
        while self._asked:
            problem, kernel = self._asked.popleft()
            there = self._problems.get(problem.id)
            if there is None or kernel.name not in there.kernels:
                self._take_task(ProblemTask(problem, (kernel,), there.weight if there is not None else 1.0))

    def _assign(self, order: Assign) -> None:
        what: dict[str, Any]
        if (job := self._again.get(order.problem)) is not None:
            self._again_number[order.number] = order.problem
            problem, kernels = job.problem, [one.kernel for one in job.timed]
            known = self._results.of(problem.id)
            what = {"again": tuple(job.timed), "again_round": job.round}
        else:
            there = self._problems[self._labels[order.problem]]
            problem, kernels = there.problem, [there.kernels[name] for name in order.kernels]
            known = self._results.of(problem.id)
            kernels += [one.kernel for one in known] if order.finals else []
            picks = self._picks(problem) if self._picks is not None else ()
            what = {"kernels": order.kernels, "finals": order.finals and there.finals}
            what["picks"] = tuple(kernel.name for kernel in picks)
        binaries = self._builds.binaries(kernels, remote=order.device in self._remote)
        if self._in_turn:
            what["upcoming"] = next(iter(self._later), "")
        else:
            what["upcoming"] = self._labels.get(self._dispatcher.upcoming(order.device), "")
        work = Work(order.number, problem.id, known=tuple(known), binaries=binaries, **what)
        self._engine.assign(order.device, work)

    def _blame(self, order: Blame) -> None:
        there = self._problems[self._labels[order.problem]]
        kernel = there.kernels[order.kernel]
        died = f"{order.deaths} devices died while it ran alone"
        crash = not_run_again(there.problem, kernel, died)
        self._log.append(self._row(crash))
        self._results.take(crash)
        self.notes.append(f"{order.deaths} devices died while {kernel.name} ran on {there.problem.id}")
