"""What a device does with an assignment, whatever process it is in: sweep, leaders, rows.

The first of several twins is measured, unless an earlier assignment or session has measured another one, and
the others get copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from datetime import UTC, datetime
from functools import partial
from itertools import chain

from tile_oracle.compiling.binary_identity import RunIdentity, run_identity
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import Ended, Message, Row, Work
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.results import not_run_again
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.twins import (
    OF_THE_BINARY,
    copies_among,
    copy_of,
    measured_picks,
    missing_copies,
    with_copies,
    without_copies,
)
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.record.journal import encode_line
from tile_oracle.record.schema import ROUND_FINAL


class Measuring:
    """Measures assignments with the isolated worker of a supervisor, in the order of their numbers.
    `withdraw` and `end` may be called from other threads."""

    def __init__(self, supervisor: Supervisor, run: str, *, elsewhere: bool = True) -> None:
        """run: name of the run, for its rows. elsewhere: whether another device can measure what a lost
        device leaves; otherwise its pairs are `device_lost`."""
        self._supervisor, self._run, self._elsewhere = supervisor, run, elsewhere
        self._identities: dict[Kernel, RunIdentity | Kernel] = {}
        self._work = Work(0, "")
        self._withdrawn: dict[int, frozenset[str]] = {}
        """Number of an assignment, which may be one to come -> its kernels that are left to others."""
        self._ends = False

    def withdraw(self, number: int, kernels: Iterable[str]) -> None:
        """Leaves kernels of an assignment, and its leaders, to others."""
        self._withdrawn[number] = self._withdrawn.get(number, frozenset()).union(kernels)

    def end(self) -> None:
        """Ends the assignment, whatever the worker is doing."""
        self._ends = True
        self._supervisor.interrupt()

    def messages(self, work: Work) -> Iterator[Message]:
        """Yields the rows of an assignment, and its end. Raises HarnessError when nothing can be measured."""
        self._work = work
        for number in [one for one in list(self._withdrawn) if one < work.number]:
            del self._withdrawn[number]  # these assignments have ended
        problem, attempts = problem_from_id(work.problem), self._supervisor.attempts
        kernels = [parse_kernel_name(name) for name in work.kernels]
        deadly: list[Measurement] = []
        if attempts is not None and attempts.careful(problem.id):
            dead = [kernel for kernel in kernels if attempts.blamed(problem.id, kernel.name)]
            deadly = [
                not_run_again(problem, kernel, "the session died twice while it ran") for kernel in dead
            ]
            kernels = [kernel for kernel in kernels if kernel not in dead]
        if work.upcoming:
            self._supervisor.make_ahead(problem_from_id(work.upcoming))
        if work.again:
            timed = self._supervisor.remeasure(problem, work.again, work.again_round)
            found = with_copies(timed, copies_among(work.known))
        else:
            found = self._swept(problem, kernels, [*work.known, *deadly])
        for one in chain(deadly, found):
            if self._ends:
                yield Ended(work.number, lost="closed")
                return
            if one.status == "device_lost" and self._elsewhere:
                continue
            now = datetime.now(UTC).isoformat()
            row = {"run": self._run, "time": now, **self._supervisor.row_of(one)}
            yield Row(work.number, one, encode_line(row))
            if attempts is not None and one.round < ROUND_FINAL:
                attempts.finished(problem.id, one.kernel.name)
        if attempts is not None and work.finals and not (work.again or work.number in self._withdrawn):
            attempts.finished(problem.id)
        yield Ended(work.number, lost=(self._supervisor.lost or "") if self._elsewhere else "")

    def _wants(self, kernel: Kernel) -> bool:
        return not self._ends and kernel.name not in self._withdrawn.get(self._work.number, ())

    def _swept(
        self, problem: Problem, kernels: Sequence[Kernel], known: Sequence[Measurement]
    ) -> Iterator[Measurement]:
        """Yields the results of the kernels and then the leaders again, each with the copies that it has."""
        picks = [parse_kernel_name(name) for name in self._work.picks]
        own, copies = without_copies(known)
        refusal = partial(self._supervisor.target.refusal, problem=problem)
        # What was refused before it ran says nothing of a kernel with the same code.
        shared = [
            m for m in own if m.round < ROUND_FINAL and m.status in OF_THE_BINARY and not refusal(m.kernel)
        ]
        refusals = {kernel: refusal(kernel) for kernel in kernels}
        yield from (Measurement(problem, one, "unsupported", why) for one, why in refusals.items() if why)
        waiting = [kernel for kernel, why in refusals.items() if why is None]
        code = self._identify([*waiting, *(m.kernel for m in shared)]) if waiting else {}
        results = {code[m.kernel]: m for m in reversed(shared) if m.kernel in code}
        while waiting:
            groups: dict[RunIdentity | Kernel, list[Kernel]] = {}
            for kernel in waiting:
                twin = results.get(code.get(kernel, kernel))
                if twin is None or (twin.is_censored and kernel in picks):  # a pick passes all checks
                    groups.setdefault(code.get(kernel, kernel), []).append(kernel)
                else:
                    copies[kernel] = twin.kernel.name
                    yield copy_of(twin, kernel)
            first = {kernel: group[0] for group in groups.values() for kernel in group}
            sweep = self._supervisor.sweep(
                problem,
                [group[0] for group in groups.values()],
                own,
                picks=[first.get(pick, pick) for pick in picks],
                finals=False,
                wanted=self._wants,
            )
            for m in sweep:
                own.append(m)
                yield m
                if m.status in OF_THE_BINARY:
                    results[code.get(m.kernel, m.kernel)] = m
                    _, *twins = groups.pop(code.get(m.kernel, m.kernel))
                    copies |= dict.fromkeys(twins, m.kernel.name)
                    yield from (copy_of(m, twin) for twin in twins)
            waiting = [kernel for group in groups.values() for kernel in group[1:]]
        if self._work.finals and not self._ends and self._work.number not in self._withdrawn:
            yield from missing_copies(known, copies)  # those that a killed session did not record
            picks = measured_picks(picks, own, copies)
            yield from with_copies(self._supervisor.sweep(problem, (), own, picks=picks), copies)

    def _identify(self, kernels: Iterable[Kernel]) -> Mapping[Kernel, RunIdentity | Kernel]:
        """Returns the identities of these and of earlier kernels, themselves where unknown. Waits for builds.

        Raises BuildError when the build folder cannot be used.
        """
        target = self._supervisor.target
        new = {one: target.owner(one).builder for one in kernels if one not in self._identities}
        builds = {kernel: target.build(kernel) for kernel, builder in new.items() if builder is not None}
        with self._supervisor.waiting_for_compilers():
            wait(builds.values())
        for kernel, build in builds.items():
            builder, binary = new[kernel], build.result().binary
            if builder is not None and binary is not None:
                self._identities[kernel] = run_identity(builder.source, kernel, binary.path) or kernel
        return self._identities
