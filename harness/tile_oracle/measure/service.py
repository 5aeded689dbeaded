"""Measures pairs on request: `measure(problem, kernel)` returns one pair, while whole problems are swept and
recorded in advance."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence

from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.results import Results, not_run_again
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.twins import TwinSweeper
from tile_oracle.problem import Problem
from tile_oracle.record.run import RunLog
from tile_oracle.record.schema import ROUND_FINAL

Plan = Callable[[Problem], Sequence[Kernel]]


class MeasureService:
    """Measures single pairs on request, while the worker runs through all planned kernels of the problem.

    plan: the kernels that will be requested for a problem, in order.
    log: records results and knows earlier ones; None records nothing.
    keep_samples: whether measurements carry every sample.
    watch: called with each new measurement, including leaders measured again.
    picks: the kernels that the model under test picks for a problem. They are measured again with the
    leaders.
    finals: whether a problem's leaders are to be measured again at the end of its sweep.
    twins_once: whether kernels that are one binary are measured once (tile_oracle.measure.twins).
    """

    def __init__(
        self,
        supervisor: Supervisor,
        plan: Plan,
        log: RunLog | None = None,
        *,
        keep_samples: bool = False,
        watch: Callable[[Measurement], None] = lambda measurement: None,
        picks: Plan = lambda problem: (),
        finals: Callable[[Problem], bool] = lambda problem: True,
        twins_once: bool = True,
    ) -> None:
        self._supervisor = supervisor
        self._sweeper = TwinSweeper(supervisor, once=twins_once)
        self._plan, self._log = plan, log
        self._finals = finals
        self._keep_samples, self._watch, self._picks = keep_samples, watch, picks
        self._results = Results(supervisor.settings, log)
        self._sweep: Generator[Measurement, None, None] | None = None
        self._begun: set[str] = set()
        self._open: set[str] = set()
        self._problem = ""

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        """Returns the measurement of a pair, and makes it unless this run already has it.

        Raises KernelError when the kernel is of another operation, direction, dtype or rank, RecordError
        when the result cannot be recorded, and BuildError when the build folder cannot be used.
        """
        found = self._results.find(problem, kernel)
        if found is None and not (problem.id == self._problem and kernel.name in self._open):
            self._begin(problem, kernel)
        while (found := self._results.find(problem, kernel)) is None:
            self._take_next()
        if problem.id == self._problem and not self._open:
            self.finish()
        return found

    def begin_again(self) -> None:
        """No problem has begun: further kernels of all of them are to come."""
        self.finish()
        self._begun.clear()

    def goes_on(self, problem: str) -> bool:
        """Whether a problem goes on although the time is over: it has begun."""
        return problem in self._begun

    def finish(self) -> None:
        """Finishes the current problem, including its leaders. Raises what `measure` raises."""
        while self._sweep is not None:
            self._take_next()

    def remeasure_all(
        self, jobs: Sequence[tuple[Problem, Sequence[Measurement], int]], ends_s: float
    ) -> list[Problem]:
        """Times measured kernels of each job again, interleaved, as rows of its round, as long as the
        monotonic time is before `ends_s`. Returns the problems that were measured. Raises what `measure`
        raises."""
        measured = []
        for problem, timed, round_ in jobs:
            if time.monotonic() >= ends_s:
                break
            self.finish()
            self._results.resume(problem)
            for one in self._sweeper.remeasure(problem, timed, round_, self._results.of(problem.id)):
                self._take(one)
            measured.append(problem)
        return measured

    def abandon(self) -> None:
        """Stops the current sweep. Finished measurements are recorded, the rest are left for another run."""
        if self._sweep is not None:
            self._sweep.close()
        self._sweep, self._problem, self._open = None, "", set()

    def close(self) -> None:
        """Stops the current sweep and the worker."""
        self.abandon()
        self._supervisor.close()

    def _begin(self, problem: Problem, kernel: Kernel) -> None:
        self.finish()
        self._begun.add(problem.id)
        self._results.resume(problem)
        planned = {k.name: k for k in (*self._plan(problem), kernel)}.values()
        self._problem = problem.id
        self._skip_deadly(problem, planned)
        kernels = self._results.missing(problem.id, planned)
        self._open = {k.name for k in kernels}
        self._sweep = self._sweeper.sweep(
            problem,
            kernels,
            self._results.of(problem.id),
            picks=self._picks(problem),
            keep_samples=self._keep_samples,
            finals=lambda: self._finals(problem),
        )

    def _skip_deadly(self, problem: Problem, planned: Iterable[Kernel]) -> None:
        """Records a crash for kernels during which the session died twice, without running them again."""
        attempts = self._supervisor.attempts
        if attempts is None or not attempts.careful(problem.id):
            return
        for kernel in planned:
            if self._results.find(problem, kernel) is not None:
                attempts.finished(problem.id, kernel.name)
            elif attempts.blamed(problem.id, kernel.name):
                self._take(not_run_again(problem, kernel, "the session died twice while it ran"))

    def _take_next(self) -> None:
        """Takes one result of the current sweep. At its end or on an error, the sweep is closed."""
        assert self._sweep is not None
        try:
            measurement = next(self._sweep, None)
            if measurement is not None:
                self._take(measurement)
        except BaseException:
            self.abandon()
            raise
        if measurement is None:
            if self._supervisor.attempts is not None:
                self._supervisor.attempts.finished(self._problem)
            self.abandon()

    def _take(self, measurement: Measurement) -> None:
        if self._log is not None:
            self._log.append(self._supervisor.row_of(measurement))
        self._watch(measurement)
        self._results.take(measurement)
        if measurement.round < ROUND_FINAL:
            if self._supervisor.attempts is not None:
                self._supervisor.attempts.finished(measurement.problem.id, measurement.kernel.name)
            self._open.discard(measurement.kernel.name)
