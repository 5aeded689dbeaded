"""Measures pairs on request: `measure(problem, kernel)` returns one pair, while whole problems are swept and
recorded in advance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace

from tile_oracle.errors import KernelError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.row import from_known, row_of
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.twins import TwinSweeper, copies_among, copies_for
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem
from tile_oracle.record.run import RunLog
from tile_oracle.record.schema import ROUND_FINAL

_DEADLY = "the session died twice while it ran: it is not run again"

Plan = Callable[[Problem], Sequence[Kernel]]


class MeasureService:
    """Measures single pairs on request, while the worker runs through all planned kernels of the problem.

    plan: the kernels that will be requested for a problem, in order.
    log: records results and knows earlier ones; None records nothing.
    keep_samples: whether measurements carry every sample.
    watch: called with each new measurement, including leaders measured again.
    picks: the kernels that the model under test picks for a problem. They are measured again with the
    leaders.
    twins_once: whether kernels that are one binary are measured once (tile_oracle.measure.twins).
    """

    def __init__(
        self,
        supervisor: Supervisor,
        plan: Plan,
        log: RunLog | None = None,
        *,
        keep_samples: bool = False,
        watch: Callable[[Measurement], None] | None = None,
        picks: Plan | None = None,
        twins_once: bool = True,
    ) -> None:
        self._supervisor = supervisor
        self._sweeper = TwinSweeper(supervisor) if twins_once else supervisor
        self._plan = plan
        self._log = log
        self._keep_samples = keep_samples
        self._watch = watch
        self._picks = picks
        self._done: dict[str, dict[str, Measurement]] = defaultdict(dict)
        self._finals: dict[str, dict[tuple[str, int], Measurement]] = defaultdict(dict)
        self._sweep: Generator[Measurement, None, None] | None = None
        self._open: set[str] = set()
        self._problem = ""

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        """Returns the measurement of a pair, and makes it unless this run already has it.

        Raises KernelError when the kernel is of another operation, direction, dtype or rank, RecordError
        when the result cannot be recorded, and BuildError when the build folder cannot be used.
        """
        if not kernel.matches(problem):
            raise KernelError(
                f"kernel {kernel.name} is not for {problem.id}: "
                f"{operation_named(problem.op).kind_words} must be equal"
            )
        done = self._done[problem.id]
        if kernel.name not in done and not (problem.id == self._problem and kernel.name in self._open):
            self._begin(problem, kernel)
        while kernel.name not in done:
            self._take_next()
        if problem.id == self._problem and not self._open:
            self.finish()
        return done[kernel.name]

    def finish(self) -> None:
        """Finishes the current problem, including its leaders. Raises what `measure` raises."""
        while self._sweep is not None:
            self._take_next()

    def remeasure(self, problem: Problem, timed: Sequence[Measurement], round_: int) -> None:
        """Times measured kernels again, interleaved, and records them, and the copies of their twins.

        Raises what `measure` raises.
        """
        self.finish()
        rows = self._log.known(problem.id) if self._log is not None else []
        recorded = [from_known(problem, parse_kernel_name(row["kernel"]), row) for row in rows]
        copies = copies_among([*recorded, *self._done[problem.id].values()])
        for measurement in self._supervisor.remeasure(problem, timed, round_):
            self._take(measurement)
            for copy in copies_for(measurement, copies):
                self._take(copy)

    def abandon(self) -> None:
        """Stops the current sweep. Finished measurements are recorded, the rest are left for another run."""
        if self._sweep is not None:
            self._sweep.close()
        self._sweep, self._problem, self._open = None, "", set()

    def _begin(self, problem: Problem, kernel: Kernel) -> None:
        self.finish()
        done, finals = self._done[problem.id], self._finals[problem.id]
        planned = {k.name: k for k in (*self._plan(problem), kernel)}
        for known in self._known(problem, planned):
            # A lost device may be back, so those pairs are measured again.
            if known.status == "device_lost":
                continue
            if known.round >= ROUND_FINAL:
                finals[known.kernel.name, known.round] = known
            else:
                done[known.kernel.name] = known
        self._problem = problem.id
        self._skip_deadly(problem, planned, done)
        kernels = [k for name, k in planned.items() if name not in done]
        self._open = {k.name for k in kernels}
        self._sweep = self._sweeper.sweep(
            problem,
            kernels,
            [*done.values(), *finals.values()],
            picks=self._picks(problem) if self._picks is not None else (),
            keep_samples=self._keep_samples,
        )

    def _skip_deadly(
        self, problem: Problem, planned: Mapping[str, Kernel], done: Mapping[str, Measurement]
    ) -> None:
        """Records a crash for kernels during which the session died twice, without running them again."""
        attempts = self._supervisor.attempts
        if attempts is None or not attempts.careful(problem.id):
            return
        for name, kernel in planned.items():
            if name in done:
                attempts.finished(problem.id, name)
            elif attempts.blamed(problem.id, name):
                self._take(Measurement(problem, kernel, "crash", _DEADLY))

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
            self._log.append(row_of(self._supervisor, measurement))
        if self._watch is not None:
            self._watch(measurement)
        problem, kernel = measurement.problem.id, measurement.kernel.name
        if measurement.round >= ROUND_FINAL:
            self._finals[problem][kernel, measurement.round] = replace(measurement, sample_ms=())
            return
        if self._supervisor.attempts is not None:
            self._supervisor.attempts.finished(problem, kernel)
        self._done[problem][kernel] = measurement
        self._open.discard(kernel)

    def _known(self, problem: Problem, kernels: Mapping[str, Kernel]) -> list[Measurement]:
        if self._log is None:
            return []
        rows = self._log.known(problem.id)
        return [from_known(problem, kernels[row["kernel"]], row) for row in rows if row["kernel"] in kernels]
