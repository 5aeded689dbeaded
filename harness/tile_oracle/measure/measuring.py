"""What a device does with an assignment, whatever process it is in: sweep, leaders, rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain

from tile_oracle.kernel import parse_kernel_name
from tile_oracle.measure.assignments import Ended, Message, Result, Row, Work
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.results import not_run_again
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.twins import TwinSweeper
from tile_oracle.problem import problem_from_id
from tile_oracle.record.journal_line import encode_line
from tile_oracle.record.schema import ROUND_FINAL


class Measuring:
    """Measures assignments with the isolated worker of a supervisor. `withdraw` and `end` may be called from
    other threads."""

    def __init__(
        self,
        supervisor: Supervisor,
        run: str,
        *,
        keep_samples: bool = False,
        elsewhere: bool = True,
    ) -> None:
        """run: name of the run, for its rows. keep_samples: whether results carry every sample. elsewhere:
        whether another device can measure what a lost device leaves; otherwise its pairs are
        `device_lost`."""
        self._supervisor, self._run = supervisor, run
        self._sweeper = TwinSweeper(supervisor)
        self._keep_samples, self._elsewhere = keep_samples, elsewhere
        self._work = Work(0, "")
        self._withdrawn: frozenset[str] = frozenset()
        self._ends = False

    def withdraw(self, number: int, kernels: Iterable[str]) -> None:
        """Leaves kernels of an assignment, and its leaders, to others."""
        if number == self._work.number:
            self._withdrawn |= frozenset(kernels)

    def end(self) -> None:
        """Ends the assignment, whatever the worker is doing."""
        self._ends = True
        self._supervisor.interrupt()

    def messages(self, work: Work) -> Iterator[Message]:
        """Yields the rows of an assignment, and its end. Raises HarnessError when nothing can be measured."""
        self._work, self._withdrawn = work, frozenset()
        problem, attempts = problem_from_id(work.problem), self._supervisor.attempts
        known = [result.measurement(problem, parse_kernel_name(name)) for name, result in work.known]
        kernels = [parse_kernel_name(name) for name in work.kernels]
        deadly: list[Measurement] = []
        if attempts is not None and attempts.careful(problem.id):
            dead = [kernel for kernel in kernels if attempts.blamed(problem.id, kernel.name)]
            deadly = [
                not_run_again(problem, kernel, "the session died twice while it ran") for kernel in dead
            ]
            kernels = [kernel for kernel in kernels if kernel not in dead]
        if work.again:
            timed = [result.measurement(problem, parse_kernel_name(name)) for name, result in work.again]
            found: Iterator[Measurement] = self._sweeper.remeasure(problem, timed, work.again_round, known)
        else:
            found = self._sweeper.sweep(
                problem,
                kernels,
                [*known, *deadly],
                picks=[parse_kernel_name(name) for name in work.picks],
                keep_samples=self._keep_samples,
                wanted=lambda kernel: not self._ends and kernel.name not in self._withdrawn,
                finals=lambda: work.finals and not self._ends and not self._withdrawn,
            )
        for one in chain(deadly, found):
            if self._ends:
                yield Ended(work.number, lost="closed")
                return
            if one.status == "device_lost" and self._elsewhere:
                continue
            row = {
                "run": self._run,
                "time": datetime.now(UTC).isoformat(),
                **self._supervisor.row_of(one),
            }
            yield Row(work.number, problem.id, one.kernel.name, Result.of(one), encode_line(row))
            if attempts is not None and one.round < ROUND_FINAL:
                attempts.finished(problem.id, one.kernel.name)
        if attempts is not None and work.finals and not (work.again or self._withdrawn):
            attempts.finished(problem.id)
        yield Ended(work.number, lost=(self._supervisor.lost or "") if self._elsewhere else "")
