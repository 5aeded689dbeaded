"""Measures a pool for one problem, in a given order and within a budget."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tile_oracle.errors import TargetError
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.kernel import Kernel, TiledKernel, tiled
from tile_oracle.measure.measurement import Measurement
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem, gemm_shape
from tile_oracle.record.final import final_measurements

_RIGHT = ("ok", "noisy")
_AT_ONCE = 4
"""The number of kernels compiled ahead of the measurement; they are wasted when the budget ends."""


@dataclass(frozen=True)
class Budget:
    """Limits of measuring a pool. seconds: time limit, including compilation. kernels: at most this many
    (None: all). A measurement in progress is completed, so the limits may be exceeded slightly.

    Raises TargetError for invalid limits.
    """

    seconds: float = 30.0
    kernels: int | None = 64

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise TargetError(f"a budget of {self.seconds} s is not a number of seconds above 0")
        if self.kernels is not None and self.kernels < 1:
            raise TargetError(f"a budget of {self.kernels} kernels is not at least 1")


@dataclass(frozen=True)
class PoolMeasurements:
    """The measurements of a problem.

    best: the fastest ok kernel; if there is none, the fastest correct kernel with a noisy time; None without
    either. pool: number of candidates. seconds: duration.
    """

    problem: Problem
    measurements: tuple[Measurement, ...]
    best: Measurement | None
    pool: int
    seconds: float

    @property
    def measured(self) -> int:
        """The number of distinct measured kernels."""
        return len({measurement.kernel for measurement in self.measurements})

    @property
    def complete(self) -> bool:
        """Whether every candidate was measured."""
        return self.measured == self.pool

    @property
    def statuses(self) -> Mapping[str, int]:
        """Status of the last measurement -> number of kernels."""
        last = {measurement.kernel: measurement.status for measurement in self.measurements}
        return Counter(last.values())

    def ranked(self) -> list[Measurement]:
        """Returns the best kernel, then the other correct ones by the latency of their last round, noisy ones
        last."""
        others = (m for m in _right(self.measurements) if self.best is None or m.kernel != self.best.kernel)
        rest = sorted(others, key=_by_latency)
        return [self.best, *rest] if self.best is not None else rest


def model_free_order(problem: Problem, kernels: Iterable[Kernel]) -> list[Kernel]:
    """Returns the order in which kernels are measured without a model.

    Pipelines alternate. Within a pipeline kernels are sorted by the padding of the implicit GEMM to whole
    tiles (least first), then by tile size (largest first: fewer operand loads), then by name. Kernels of an
    operation without tiles are sorted by name.
    """
    if "pipeline" not in operation_named(problem.op).kernel_fields:
        return sorted(kernels, key=lambda kernel: kernel.name)
    shape = gemm_shape(problem)

    def by_fit(kernel: TiledKernel) -> tuple[int, int, str]:
        covered = math.prod(
            -(-extent // tile) * tile for extent, tile in zip(shape, kernel.tile, strict=True)
        )
        return covered, -kernel.tile[0] * kernel.tile[1], kernel.name

    pipelines: dict[str, list[Kernel]] = {}
    for kernel in sorted(map(tiled, kernels), key=by_fit):
        pipelines.setdefault(kernel.pipeline, []).append(kernel)
    turns = zip_longest(*(pipelines[name] for name in sorted(pipelines)))
    return [kernel for turn in turns for kernel in turn if kernel is not None]


def measure_pool(
    supervisor: Supervisor,
    problem: Problem,
    kernels: Sequence[Kernel],
    budget: Budget,
    watch: Callable[[Measurement], None] | None = None,
) -> PoolMeasurements:
    """Measures kernels in order until the budget is spent, then measures the leaders again.

    watch: called with each measurement. Raises BuildError if the build folder cannot be used.
    """
    began = time.monotonic()
    chosen = kernels[: budget.kernels]
    taken: list[Measurement] = []

    def take(measurements: Iterator[Measurement], *, bounded: bool) -> bool:
        """Collects measurements; returns whether the budget sufficed for all of them."""
        for measurement in measurements:
            taken.append(measurement)
            if watch is not None:
                watch(measurement)
            if bounded and time.monotonic() - began >= budget.seconds:
                return False
        return True

    parts = [chosen[start : start + _AT_ONCE] for start in range(0, len(chosen), _AT_ONCE)]
    for part, ahead in zip_longest(parts, parts[1:], fillvalue=()):
        for kernel in ahead:
            if supervisor.target.refusal(kernel, problem) is None:
                supervisor.target.build(kernel)
        sweep = supervisor.sweep(problem, part, finals=False)
        try:
            if not take(sweep, bounded=True):
                break
        finally:
            sweep.close()
    take(supervisor.sweep(problem, (), taken), bounded=False)
    return PoolMeasurements(problem, tuple(taken), best_of(taken), len(kernels), time.monotonic() - began)


def best_of(measurements: Sequence[Measurement]) -> Measurement | None:
    """Returns the oracle, determined as from a run's records, or else the fastest correct kernel; None
    without one."""
    import pandas as pd

    if not measurements:
        return None
    rows = pd.DataFrame([measurement.as_row() for measurement in measurements])
    oracle = find_oracles(final_measurements(rows)).iloc[0]
    latency = oracle["oracle_latency_ms"]
    for measurement in reversed(measurements):
        if measurement.kernel.name == oracle["oracle_kernel"] and measurement.latency_ms == latency:
            return measurement
    return min(_right(measurements), key=_by_latency, default=None)


def _right(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Returns the last measurement of each kernel whose result was correct."""
    last = {measurement.kernel: measurement for measurement in measurements}
    return [measurement for measurement in last.values() if measurement.status in _RIGHT]


def _by_latency(measurement: Measurement) -> tuple[bool, float, str]:
    return not measurement.ok, measurement.latency_ms, measurement.kernel.name
