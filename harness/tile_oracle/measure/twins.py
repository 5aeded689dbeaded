"""Twins: kernels of one problem with equal binaries and launches. One is measured; the others get copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.record.schema import ROUND_FINAL
from tile_oracle.record.twins import measured_twin, twin_detail

OF_THE_BINARY = frozenset(("ok", "untimed", "unsupported", "wrong", "flaky", "crash", "timeout"))
"""The statuses that depend on the binary alone. After another one the next twin is measured itself."""


def copy_of(measurement: Measurement, twin: Kernel) -> Measurement:
    """Returns the measurement as that of a twin, marked in `detail`."""
    detail = twin_detail(measurement.kernel.name, measurement.detail)
    return replace(measurement, kernel=twin, detail=detail, resumed=False)


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


def with_copies(measurements: Iterable[Measurement], copies: Mapping[Kernel, str]) -> Iterator[Measurement]:
    """Yields each measurement, followed by the copies that it has."""
    for measurement in measurements:
        yield measurement
        yield from copies_for(measurement, copies)


def measured_picks(
    picks: Iterable[Kernel], own: Iterable[Measurement], copies: Mapping[Kernel, str]
) -> list[Kernel]:
    """Returns the picks, in place of a copy the kernel that was measured. own, copies: see
    `without_copies`."""
    names = {m.kernel.name: m.kernel for m in own}
    return [names.get(copies.get(pick, ""), pick) for pick in picks]
