"""The formulas of the roofline model: how long a tile's step, its rounds and the memory take.

tile_oracle.model.roofline explains them. The constants here are those that ship; the features of
`gemm_pool_2` are computed with these, so a schema's trained models need them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tile_oracle.features.feature_table import Array
from tile_oracle.features.schemas.roofline_work import Work
from tile_oracle.features.schemas.tile_work import (
    COPIES,
    DESCRIPTORS,
    ENGINES,
    LIBRARY,
    OLDER,
    PLAIN,
    ROWS,
    SCALAR,
    SMALL,
)

_FP32_BYTES = 4.0
_LDS_BYTES_A_CLOCK = 128.0
"""32 banks of 4 bytes: "CUDA C++ Programming Guide", compute capability 9.0; "CDNA 3 Instruction Set"."""


@dataclass(frozen=True)
class Engine:
    """How a class of kernels works. efficiency: of the peak rate at the clock under load. issue_bytes: bytes
    that a compute unit's threads load in a microsecond. start_us: start and end of a workgroup. step_us:
    barriers of a step. row_us: time of a step for each row of a tile outside of the matrix."""

    efficiency: float = 0.55
    issue_bytes: float = 1e5
    start_us: float = 1.5
    step_us: float = 0.05
    row_us: float = 0.002


@dataclass(frozen=True)
class Constants:
    """What all kernels share. clock_share: the clock under load over the highest one. launch_us: of a
    launch. latency_us: of a load from memory. memory_share: of the memory's bandwidth that is reached.
    unit_bytes: bytes that a compute unit reads from the caches in a microsecond. narrow: cost of each further
    load where 16 bytes take several. reread: share of an operand beyond the cache that further rounds read
    again. sum_share: of unit_bytes in split-K's second pass."""

    clock_share: float = 1.0
    launch_us: float = 1.1
    latency_us: float = 0.03
    memory_share: float = 0.76
    unit_bytes: float = 310000.0
    narrow: float = 3.3
    reread: float = 0.3
    sum_share: float = 0.15


def default_engines() -> dict[str, Engine]:
    """The constants that ship."""
    found = {name: Engine() for name in ENGINES}
    found[COPIES] = Engine(0.93, 470000.0, 2.3, 0.057, 0.005)
    found[SMALL] = Engine(0.7, 580000.0, 1.0, 0.078, 0.0028)
    found[DESCRIPTORS] = Engine(1.0, 1000000.0, 2.7, 0.071, 0.0023)
    found[ROWS] = Engine(0.046, 880000.0, 0.23, 0.12, 0.00096)
    found[LIBRARY] = Engine(0.82, 1000000.0, 1.2, 0.001, 0.0009)
    found[OLDER] = Engine(0.15, 370000.0, 1.8, 0.18, 0.0001)
    found[PLAIN] = Engine(0.39, 2000000.0, 0.05, 0.034, 0.0001)
    found[SCALAR] = Engine(0.029, 310000.0, 0.05, 0.037, 0.00021)
    found["comp_async"] = Engine(0.36, 87000.0, 0.75, 0.11, 0.0046)
    found["mem"] = Engine(0.67, 190000.0, 1.2, 0.51, 0.0001)
    return found


@dataclass(frozen=True)
class Engines:
    """The constants of each row's engine."""

    efficiency: Array
    issue_bytes: Array
    start_us: Array
    step_us: Array
    row_us: Array

    @classmethod
    def of(cls, engines: list[Engine], index: Any) -> Engines:
        return cls(
            **{one.name: np.array([getattr(e, one.name) for e in engines])[index] for one in fields(Engine)}
        )


@dataclass(frozen=True)
class Step:
    """Microseconds of one step of a compute unit's workgroups, by what they wait for. all_us: of the step."""

    compute_us: Array
    lds_us: Array
    cached_us: Array
    issued_us: Array
    waiting_us: Array
    all_us: Array


@dataclass(frozen=True)
class Time:
    """Microseconds of each row, and where they go. `on_unit`: workgroups of a compute unit. `at_once`: those
    that it runs at once. step: with so many."""

    total_us: Array
    busy_us: Array
    memory_us: Array
    second_us: Array
    on_unit: Array
    at_once: Array
    step: Step


@dataclass(frozen=True)
class Roofline:
    """The constants of the formulas: those that all kernels share, and those of each engine."""

    shared: Constants = field(default_factory=Constants)
    engines: Mapping[str, Engine] = field(default_factory=default_engines)

    def time(self, work: Work) -> Time:
        """The time of each row of work."""
        shared = self.shared
        engine = Engines.of([self.engines[name] for name in ENGINES], work.engine)
        units = work.units
        on_unit = np.ceil(work.groups / units)
        at_once = np.minimum(work.resident, on_unit)
        full = np.floor(on_unit / at_once)
        rest = on_unit - full * at_once
        end_us = engine.start_us + shared.latency_us
        step = _step(work, engine, shared, at_once)
        many = work.steps * step.all_us + end_us
        few = work.steps * _step(work, engine, shared, np.maximum(rest, 1.0)).all_us + end_us
        busy_us = full * many + np.where(rest > 0, few, 0.0)
        beyond = np.where(work.bytes_b > work.cache_bytes, work.bytes_b, 0.0)
        side = np.sqrt(units * at_once)
        again = np.maximum(np.ceil(work.tiles_m / side) - 1.0, 0.0) * beyond * shared.reread
        moved = work.bytes_a + work.bytes_b + work.bytes_c + again
        memory_us = moved / (shared.memory_share * work.memory_bytes)
        second = (work.parts + 1.0) * work.values / units
        # A program adds up the parts of a streamed tile, one after the other.
        streamed = (units / work.tiles + 1.0) * np.ceil(work.tiles / units) * work.tile_values
        second = np.where(work.streams, streamed, second) * _FP32_BYTES
        second_us = 0.5 * shared.launch_us + second / (shared.sum_share * shared.unit_bytes)
        second_us = np.where(work.summed, second_us, 0.0)
        total_us = shared.launch_us + slowest(busy_us, memory_us) + second_us
        return Time(np.asarray(total_us), busy_us, memory_us, second_us, on_unit, at_once, step)

    def least_us(self, work: Work) -> Array:
        """The time without tiles: the launch, and the slower of all operations at the peak rate and of the
        matrices' way through the memory."""
        flops = 2.0 * work.values * work.depth
        peak_us = flops / (work.unit_flops * self.shared.clock_share * work.clock_mhz * work.units)
        moved = work.bytes_a + work.bytes_b + work.bytes_c
        memory_us = moved / (self.shared.memory_share * work.memory_bytes)
        return np.asarray(self.shared.launch_us + slowest(peak_us, memory_us))


def _step(work: Work, engine: Engines, shared: Constants, at_once: Array) -> Step:
    """Microseconds of a step while a compute unit runs this many workgroups at once."""
    clock = shared.clock_share * work.clock_mhz
    compute = at_once * work.tile_flops / (engine.efficiency * work.unit_flops * clock)
    in_lds = at_once * work.lds_bytes / (_LDS_BYTES_A_CLOCK * clock)
    cached = at_once * work.useful_bytes / shared.unit_bytes
    issued = at_once * work.tile_bytes / engine.issue_bytes * (1.0 + shared.narrow * (work.loads - 1.0))
    waiting = shared.latency_us / np.maximum(work.stages - 1.0, 1.0)
    outside = at_once * engine.row_us * work.rows_outside
    issued = issued * work.spills
    together = slowest(compute, in_lds, cached, issued, waiting)
    all_us = together + engine.step_us * np.sqrt(at_once) + outside
    return Step(compute, in_lds, cached, issued, waiting, np.asarray(all_us))


def slowest(*times: Array) -> Array:
    """The eighth root of the sum of eighth powers: the largest, or a little more where several are close."""
    total = np.zeros(len(times[0]))
    for time in times:
        fourth = (time * time) * (time * time)
        total = total + fourth * fourth
    return np.asarray(np.sqrt(np.sqrt(np.sqrt(total))))
