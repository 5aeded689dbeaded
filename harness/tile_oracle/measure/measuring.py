"""What a device does with an assignment, whatever process it is in: sweep, leaders, rows.

Twins are found before anything of a problem is measured, so all of its kernels are built first. The first
kernel of a group is measured, unless an earlier session has measured another one, and the others get copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from datetime import UTC, datetime
from itertools import chain

from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.compiling.run_identity import RunIdentity, run_identity
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import Ended, Message, Row, Work
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.results import not_run_again
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.twins import (
    OF_THE_BINARY,
    copies_among,
    copies_for,
    copy_of,
    measured_picks,
    missing_copies,
    without_copies,
)
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.journal_line import encode_line
from tile_oracle.record.schema import ROUND_FINAL


class Measuring:
    """Measures assignments with the isolated worker of a supervisor. `withdraw` and `end` may be called from
    other threads."""

    def __init__(self, supervisor: Supervisor, run: str, *, elsewhere: bool = True) -> None:
        """run: name of the run, for its rows. elsewhere: whether another device can measure what a lost
        device leaves; otherwise its pairs are `device_lost`."""
        self._supervisor, self._run, self._elsewhere = supervisor, run, elsewhere
        self._identities: dict[Kernel, RunIdentity | None] = {}
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
        kernels = [parse_kernel_name(name) for name in work.kernels]
        deadly: list[Measurement] = []
        if attempts is not None and attempts.careful(problem.id):
            dead = [kernel for kernel in kernels if attempts.blamed(problem.id, kernel.name)]
            deadly = [
                not_run_again(problem, kernel, "the session died twice while it ran") for kernel in dead
            ]
            kernels = [kernel for kernel in kernels if kernel not in dead]
        if work.again:
            found = self._timed_again(problem, work)
        else:
            found = self._swept(problem, kernels, [*work.known, *deadly])
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
            yield Row(work.number, one, encode_line(row))
            if attempts is not None and one.round < ROUND_FINAL:
                attempts.finished(problem.id, one.kernel.name)
        if attempts is not None and work.finals and not (work.again or self._withdrawn):
            attempts.finished(problem.id)
        yield Ended(work.number, lost=(self._supervisor.lost or "") if self._elsewhere else "")

    def _wants(self, kernel: Kernel) -> bool:
        return not self._ends and kernel.name not in self._withdrawn

    def _timed_again(self, problem: Problem, work: Work) -> Iterator[Measurement]:
        copies = copies_among(work.known)
        for m in self._supervisor.remeasure(problem, work.again, work.again_round):
            yield m
            yield from copies_for(m, copies)

    def _swept(
        self, problem: Problem, kernels: Sequence[Kernel], known: Sequence[Measurement]
    ) -> Iterator[Measurement]:
        """Yields the results of the kernels and then the leaders again, each with the copies that it has."""
        picks = [parse_kernel_name(name) for name in self._work.picks]
        own, copies = without_copies(known)
        shared = [m for m in own if m.round < ROUND_FINAL and m.status in OF_THE_BINARY]
        identities = self._identify(problem, [*kernels, *(m.kernel for m in shared)]) if kernels else {}
        results = {identities[m.kernel]: m for m in reversed(shared) if m.kernel in identities}
        waiting = list(kernels)
        while waiting:
            first: list[Kernel] = []
            later: dict[RunIdentity, list[Kernel]] = {}
            for kernel in waiting:
                identity = identities.get(kernel)
                if identity is None:
                    first.append(kernel)
                elif identity in results:
                    copies[kernel] = results[identity].kernel.name
                    yield copy_of(results[identity], kernel)
                elif identity in later:
                    later[identity].append(kernel)
                else:
                    later[identity] = []
                    first.append(kernel)
            runs = {
                twin: kernel
                for kernel in first
                if (identity := identities.get(kernel)) is not None
                for twin in later[identity]
            }
            chosen = [runs.get(pick, pick) for pick in picks]
            for m in self._supervisor.sweep(
                problem, first, own, picks=chosen, finals=False, wanted=self._wants
            ):
                own.append(m)
                yield m
                identity = identities.get(m.kernel)
                if identity is not None and m.status in OF_THE_BINARY:
                    results[identity] = m
                    twins = later.pop(identity)
                    copies |= dict.fromkeys(twins, m.kernel.name)
                    yield from (copy_of(m, twin) for twin in twins)
            waiting = [kernel for twins in later.values() for kernel in twins]
        if self._work.finals and not self._ends and not self._withdrawn:
            yield from missing_copies(known, copies)  # those that a killed session did not record
            for m in self._supervisor.sweep(problem, (), own, picks=measured_picks(picks, own, copies)):
                yield m
                yield from copies_for(m, copies)

    def _identify(self, problem: Problem, kernels: Iterable[Kernel]) -> dict[Kernel, RunIdentity]:
        """Returns the identities of the source's kernels that can run the problem, as far as known. Waits for
        builds.

        Raises BuildError when the build folder cannot be used.
        """
        target = self._supervisor.target
        sources: dict[Kernel, KernelSource] = {}
        for kernel in kernels:
            builder = target.owner(kernel).builder
            if builder is not None and target.refusal(kernel, problem) is None:
                sources[kernel] = builder.source
        builds = {kernel: target.build(kernel) for kernel in sources}
        with self._supervisor.waiting_for_compilers():
            wait(builds.values())
        for kernel, build in builds.items():
            binary = build.result().binary
            if binary is not None and kernel not in self._identities:
                self._identities[kernel] = run_identity(sources[kernel], kernel, binary.path)
        found = {kernel: self._identities.get(kernel) for kernel in builds}
        return {kernel: identity for kernel, identity in found.items() if identity is not None}
