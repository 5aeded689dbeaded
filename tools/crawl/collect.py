"""Traces architectures into a trace file. Pairs of architecture and resolution already in it are skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tools.crawl.catalogue import Architecture
from tools.crawl.trace import Trace, trace
from tools.crawl.trace_file import TraceFile


@dataclass(frozen=True)
class Progress:
    """Reported after each trace. seconds_left: estimated from the traces made so far in this call."""

    done: int
    total: int
    trace: Trace
    seconds_left: float


def collect(
    architectures: Sequence[Architecture],
    file: TraceFile,
    report: Callable[[Progress], None],
    resolutions: Sequence[tuple[int, ...]] = (),
) -> tuple[Trace, ...]:
    """Returns the traces of the architectures, in their order, failed ones included (`Trace.error`).

    resolutions: replace each image architecture's own; video models keep theirs.
    """
    wanted = [(a, resolution) for a in architectures for resolution in _resolutions(a, resolutions)]
    missing = [(a, resolution) for a, resolution in wanted if (a.label, resolution) not in file.traces]
    started = time.perf_counter()
    for number, (architecture, resolution) in enumerate(missing, 1):
        made = trace(architecture, resolution)
        file.add(made)
        spent = time.perf_counter() - started
        done = len(wanted) - len(missing) + number
        report(Progress(done, len(wanted), made, spent / number * (len(missing) - number)))
    return tuple(file.traces[a.label, resolution] for a, resolution in wanted)


def _resolutions(architecture: Architecture, instead: Sequence[tuple[int, ...]]) -> Iterable[tuple[int, ...]]:
    of_images = all(len(resolution) == 2 for resolution in architecture.resolutions)
    return instead if instead and of_images else architecture.resolutions
