"""Twins: kernels of one problem with equal binaries and launches. One is measured; the others get copies.

Twins are found before anything of a problem is measured, so all of its kernels are built first. The first
kernel of a group is measured, unless an earlier session has measured another one. A status that depends on
the binary alone is copied to the others. If it is noisy or lost, the next twin is measured itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace

from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.compiling.run_identity import RunIdentity, run_identity
from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.problem import Problem
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.record.twins import measured_twin, twin_detail

_OF_THE_BINARY = frozenset(("ok", "untimed", "unsupported", "wrong", "flaky", "crash", "timeout"))


def copy_of(measurement: Measurement, twin: Kernel) -> Measurement:
    """Returns the measurement as that of a twin, marked in `detail`."""
    detail = twin_detail(measurement.kernel.name, measurement.detail)
    return replace(measurement, kernel=twin, detail=detail)


def copies_among(measurements: Iterable[Measurement]) -> dict[Kernel, str]:
    """Returns the kernels whose measurements are copies, with the names of the kernels that were measured."""
    found = {m.kernel: measured_twin(m.detail) for m in measurements}
    return {kernel: name for kernel, name in found.items() if name is not None}


def without_copies(known: Sequence[Measurement]) -> tuple[list[Measurement], dict[Kernel, str]]:
    """Returns the measurements of one problem without the copies, and the copies as `copies_among` names
    them. Copies of a kernel that is not there count as measurements."""
    names = {m.kernel.name for m in known}
    copies = {kernel: name for kernel, name in copies_among(known).items() if name in names}
    return [m for m in known if m.kernel not in copies], copies


def missing_copies(known: Sequence[Measurement], copies: Mapping[Kernel, str]) -> Iterator[Measurement]:
    """Yields the copies of leaders' measurements that a killed session did not record. known: of one
    problem."""
    there = {(m.kernel, m.round) for m in known}
    for m in known:
        if m.round >= ROUND_FINAL and m.kernel not in copies:
            yield from (copy for copy in copies_for(m, copies) if (copy.kernel, copy.round) not in there)


def copies_for(measurement: Measurement, copies: Mapping[Kernel, str]) -> Iterator[Measurement]:
    """Yields the copies that a measurement has, for kernels of `copies_among`."""
    for twin, measured in copies.items():
        if measured == measurement.kernel.name:
            yield copy_of(measurement, twin)


def measured_picks(
    picks: Iterable[Kernel], own: Iterable[Measurement], copies: Mapping[Kernel, str]
) -> list[Kernel]:
    """Returns the picks, in place of a copy the kernel that was measured. own, copies: see
    `without_copies`."""
    names = {m.kernel.name: m.kernel for m in own}
    return [names.get(copies.get(pick, ""), pick) for pick in picks]


class TwinSweeper:
    """Sweeps problems with a supervisor, and measures twins once."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._identities: dict[Kernel, RunIdentity | None] = {}

    def sweep(
        self,
        problem: Problem,
        kernels: Sequence[Kernel],
        known: Sequence[Measurement] = (),
        *,
        picks: Collection[Kernel] = (),
        keep_samples: bool = False,
        wanted: Callable[[Kernel], bool] | None = None,
        finals: Callable[[], bool] = lambda: True,
    ) -> Generator[Measurement, None, None]:
        """See Supervisor.sweep. Also yields the copies.

        finals: asked once every kernel was measured: whether to measure the leaders again.
        `known` may contain copies.
        """
        own, copies = without_copies(known)
        shared = [m for m in own if m.round < ROUND_FINAL and m.status in _OF_THE_BINARY]
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
                problem, first, own, picks=chosen, keep_samples=keep_samples, finals=False, wanted=wanted
            ):
                own.append(m)
                yield m
                identity = identities.get(m.kernel)
                if identity is not None and m.status in _OF_THE_BINARY:
                    results[identity] = m
                    twins = later.pop(identity)
                    copies |= dict.fromkeys(twins, m.kernel.name)
                    yield from (copy_of(m, twin) for twin in twins)
            waiting = [kernel for twins in later.values() for kernel in twins]
        if finals():
            yield from self._finals(problem, own, known, copies, picks, keep_samples)

    def _finals(
        self,
        problem: Problem,
        own: Sequence[Measurement],
        known: Sequence[Measurement],
        copies: Mapping[Kernel, str],
        picks: Collection[Kernel],
        keep_samples: bool,
    ) -> Iterator[Measurement]:
        """Yields the leaders again. First the copies that a killed session did not record."""
        yield from missing_copies(known, copies)
        picks = measured_picks(picks, own, copies)
        for m in self._supervisor.sweep(problem, (), own, picks=picks, keep_samples=keep_samples):
            yield m
            yield from copies_for(m, copies)

    def remeasure(
        self,
        problem: Problem,
        timed: Sequence[Measurement],
        round_: int,
        known: Iterable[Measurement],
    ) -> Iterator[Measurement]:
        """See Supervisor.remeasure. Also yields the copies. known: the problem's earlier measurements."""
        copies = copies_among(known)
        for m in self._supervisor.remeasure(problem, timed, round_):
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
