"""The formulas of the roofline model: how long a tile's step, its rounds and the memory take.

tile_oracle.model.roofline explains them. The constants here are those that ship; the features of
`gemm_pool_2` are computed with these, so a schema's trained models need them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from tile_oracle.features import exact_math
from tile_oracle.features.feature_table import Array
from tile_oracle.features.schemas.roofline_work import Work
from tile_oracle.features.schemas.tile_work import ENGINES

FITTED_TO = "the times of 1,129 products on an NVIDIA H200"
"""The measurements behind the constants of engines and of what all kernels share."""

_FP32_BYTES = 4.0
_LDS_BYTES_A_CLOCK = 128.0
"""32 banks of 4 bytes: "CUDA C++ Programming Guide", compute capability 9.0; "CDNA 3 Instruction Set"."""


@dataclass(frozen=True)
class Engine:
    """How a class of kernels works. efficiency: of the peak rate at the clock under load. issue_bytes: bytes
    that a compute unit's threads load in a microsecond. narrow: cost of each further load where 16 bytes take
    several. start_us: start and end of a workgroup. step_us: barriers of a step. row_us: time of a step for
    each row of a tile outside of the matrix. latency, memory: factors of the shared constants. end_bytes:
    bytes of a tile's result, or of sums in LDS, that a compute unit writes in a microsecond. narrow_end: cost
    of each further store. sum_us, sum_bytes: start of split-K's second pass, and bytes that a compute unit
    adds up in a microsecond. Numbers, or arrays of the engine of each row."""

    efficiency: Any = 0.7
    issue_bytes: Any = 400000.0
    narrow: Any = 1.0
    start_us: Any = 1.0
    step_us: Any = 0.05
    row_us: Any = 0.002
    latency: Any = 1.0
    memory: Any = 1.0
    end_bytes: Any = 30000.0
    narrow_end: Any = 0.3
    sum_us: Any = 1.5
    sum_bytes: Any = 50000.0


@dataclass(frozen=True)
class Constants:
    """What all kernels share. clock_share: the clock under load over the highest one. launch_us: of a
    launch. latency_us: of a load from memory. memory_share: of the memory's bandwidth that is reached.
    unit_bytes: bytes that a compute unit reads from the caches in a microsecond. cache_bytes: those that all
    of them read. warm: share of the cache up to which matrices stay in it from one run to the next. reread:
    share of an operand beyond the cache that further rounds read again. cluster_us: start of a cluster, for
    each doubling. part_us: to add up one more part of a streamed tile."""

    clock_share: float = 1.0
    launch_us: float = 0.902
    latency_us: float = 0.46
    memory_share: float = 0.771
    unit_bytes: float = 142000.0
    cache_bytes: float = 10200000.0
    warm: float = 0.496
    reread: float = 0.3
    cluster_us: float = 0.0461
    part_us: float = 0.102


# Fitted to FITTED_TO: efficiency, issue_bytes, narrow, start_us, step_us, row_us, latency, memory,
# end_bytes, narrow_end, sum_us, sum_bytes.
_FITTED: Mapping[str, tuple[float, ...]] = {
    "copies": (0.742, 159000, 0.862, 0.949, 0.0357, 0.00415, 1.64, 0.908, 13600, 0.005, 2.35, 3000000),
    "small": (0.889, 290000, 1.48, 1.15, 0.112, 0.00421, 0.626, 1.1, 12100, 0.0105, 3.09, 1080000),
    "pieces": (0.903, 113000, 1, 1.89, 0.125, 0.00359, 0.89, 1.13, 16300, 0.3, 1.5, 50000),
    "rows": (0.0687, 350000, 1.12, 0.114, 0.123, 0.02, 1.13, 1.3, 147000, 0.011, 1.5, 50000),
    "columns": (0.0456, 501000, 0.821, 0.0904, 0.434, 0.00227, 0.155, 0.277, 76500, 0.167, 1.5, 50000),
    "descriptors": (0.77, 453000, 1, 2.43, 0.0221, 0.00176, 1.55, 0.915, 18700, 0.00543, 3.56, 112000),
    "swapped": (0.382, 396000, 1, 2.07, 0.0723, 0.0027, 1.69, 1.08, 26300, 0.289, 2.68, 44500),
    "uneven": (0.83, 446000, 1, 3.74, 0.0424, 0.00125, 1.7, 0.905, 17800, 0.0124, 1.5, 50000),
    "warps": (0.792, 419000, 1, 0.274, 0.00105, 0.00117, 3.42, 0.918, 14700, 0.3, 2.59, 3000000),
    "library": (1, 123000, 0.107, 0.436, 0.00803, 0.00104, 2.11, 1.04, 26700, 18, 2.52, 15000),
    "library_1": (1, 844000, 0.547, 0.19, 0.0111, 0.00123, 2.32, 1.27, 28200, 0.251, 2.45, 10600),
    "library_2": (0.983, 684000, 0.668, 0.0274, 0.000833, 0.000742, 2.35, 0.978, 31400, 0.3, 3.28, 63400),
    "library_3": (0.963, 932000, 0.441, 0.233, 0.000833, 0.000911, 2.58, 1.19, 27300, 0.281, 3.36, 50500),
    "library_4": (0.769, 404000, 1, 0.0383, 0.0302, 0.000796, 2.79, 0.999, 18200, 0.3, 3.27, 21800),
    "library_5": (0.819, 372000, 1, 0.282, 0.0557, 0.000988, 0.426, 1.02, 12800, 0.3, 3.91, 25300),
    "library_6": (0.727, 86900, 0.378, 0.0988, 0.00139, 0.00274, 0.168, 0.851, 11300, 0.293, 0.465, 49100),
    "library_7": (0.971, 389000, 1, 0.0299, 0.00225, 0.00328, 3.21, 1.04, 17700, 0.3, 3.21, 76900),
    "library_older": (0.201, 549000, 0.762, 0.0832, 0.133, 0.000387,
        0.143, 0.836, 1250000, 0.079, 1.67, 810000),
    "library_scalar": (0.0424, 400000, 0.999, 0.0167, 1.14, 0.000113, 0.0167, 1, 11600, 0.244, 1.5, 50000),
    "library_a11": (0.402, 605000, 0.695, 0.392, 0.0148, 8.45e-05, 0.594, 0.435, 14800, 0.488, 1.5, 50000),
    "library_a12": (0.781, 642000, 0.611, 0.0615, 0.0205, 0.000358, 0.109, 0.999, 10600, 0.005, 1.5, 50000),
    "library_a13": (1, 1130000, 0.423, 0.758, 0.00261, 3.33e-05, 0.854, 0.685, 1540, 0.334, 2.65, 833),
    "library_a14": (1, 624000, 0.651, 0.2, 0.00366, 3.33e-05, 0.311, 1, 2090, 3.9, 2.54, 48900),
    "library_a21": (0.438, 59800, 0.0747, 0.779, 0.000976, 3.33e-05, 0.91, 1.06, 12000, 17.9, 2.5, 3000000),
    "library_a23": (0.312, 27800, 0.0253, 1.41, 0.0352, 3.33e-05, 1.06, 1.41, 12300, 0.005, 2, 2520000),
    "library_a24": (0.122, 686000, 0.584, 2.11, 0.702, 3.33e-05, 0.0759, 0.28, 22700, 0.00501, 2.09, 3000000),
    "comp_async": (0.36, 64100, 3.37, 0.599, 0.102, 0.00465, 0.464, 1.18, 14500, 0.676, 1.5, 50000),
    "mem": (0.723, 29000, 0.52, 1.28, 0.0665, 3.33e-05, 0.942, 1.76, 31800, 1.23, 1.5, 50000),
}  # fmt: skip
_ENGINES = np.array([astuple(Engine(*_FITTED.get(name, ()))) for name in ENGINES])
"""The constants of every engine, (engines, constants)."""


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
    """Microseconds of each row, and where they go.

    `on_unit`: workgroups of a compute unit. `at_once`: how many of them it runs at once. step: the time of a
    step when `at_once` of them run.
    """

    total_us: Array
    busy_us: Array
    memory_us: Array
    second_us: Array
    on_unit: Array
    at_once: Array
    step: Step


@dataclass(frozen=True)
class Roofline:
    """The formulas, with the constants that all kernels share."""

    shared: Constants = field(default_factory=Constants)

    def time(self, work: Work) -> Time:
        """Returns the time of each row of work."""
        shared = self.shared
        engine = Engine(*_ENGINES[work.engine].T)
        on_unit = np.ceil(work.groups / work.slots)
        at_once = np.minimum(work.resident, on_unit)
        full = np.floor(on_unit / at_once)
        rest = on_unit - full * at_once
        in_cluster = shared.cluster_us * exact_math.log2(work.cluster)
        start_us = engine.start_us + shared.latency_us * engine.latency + in_cluster
        stored_us = work.end_bytes / engine.end_bytes * (1.0 + engine.narrow_end * (work.stores - 1.0))
        step = _step(work, engine, shared, at_once)
        many = work.steps * step.all_us + work.ends * (start_us + at_once * stored_us)
        last = work.steps * _step(work, engine, shared, np.maximum(rest, 1.0)).all_us
        busy_us = full * many + np.where(rest > 0, last + start_us + rest * stored_us, 0.0)
        memory_us = self._memory_us(work, engine, at_once)
        cache_us = work.groups * work.steps * work.shared_bytes / shared.cache_bytes
        second_us = self._second_us(work, engine)
        total_us = shared.launch_us + slowest(busy_us, memory_us, cache_us) + second_us
        return Time(total_us, busy_us, memory_us, second_us, on_unit, at_once, step)

    def _memory_us(self, work: Work, engine: Engine, at_once: Array) -> Array:
        """Returns the time of what does not stay in the cache from one run to the next."""
        shared = self.shared
        all_bytes = work.bytes_a + work.bytes_b + work.bytes_c
        beyond = np.where(work.bytes_b > work.cache_bytes, work.bytes_b, 0.0)
        side = np.sqrt(work.units * at_once)
        again = np.maximum(np.ceil(work.tiles_m / side) - 1.0, 0.0) * beyond * shared.reread
        rate = np.minimum(shared.memory_share * engine.memory, 1.0) * work.memory_bytes
        memory_us: Array = self._away(work) * (all_bytes + again) / rate
        return memory_us

    def _away(self, work: Work) -> Array:
        """Returns the share of the matrices that is not in the cache when a launch begins."""
        filled = (work.bytes_a + work.bytes_b + work.bytes_c) / (self.shared.warm * work.cache_bytes)
        fourth = (filled * filled) * (filled * filled)
        return fourth / (1.0 + fourth)

    def _second_us(self, work: Work, engine: Engine) -> Array:
        """Returns the time to add up the parts of split-K or stream-K."""
        units = work.units
        added = (work.parts + 1.0) * work.values / units
        # A program adds up the parts of a streamed tile, one after the other.
        streamed = (units / work.tiles + 1.0) * np.ceil(work.tiles / units) * work.tile_values
        added_us = np.where(work.streams, streamed, added) * _FP32_BYTES / engine.sum_bytes
        one_by_one = np.where(work.streams, work.groups / work.tiles * self.shared.part_us, 0.0)
        return np.where(work.summed, engine.sum_us + added_us + one_by_one, 0.0)

    def least_us(self, work: Work) -> Array:
        """Returns the time without tiles: the launch, and the slower of all operations at the peak rate and
        of the matrices' way through the memory."""
        flops = 2.0 * work.values * work.depth
        peak_us = flops / (work.unit_flops * self.shared.clock_share * work.clock_mhz * work.units)
        moved = work.bytes_a + work.bytes_b + work.bytes_c
        memory_us = self._away(work) * moved / (self.shared.memory_share * work.memory_bytes)
        cache_us = moved / self.shared.cache_bytes
        return self.shared.launch_us + slowest(peak_us, memory_us, cache_us)


def _step(work: Work, engine: Engine, shared: Constants, at_once: Array) -> Step:
    """Microseconds of a step while a compute unit runs this many workgroups at once."""
    clock = shared.clock_share * work.clock_mhz
    compute = at_once * work.tile_flops / (engine.efficiency * work.unit_flops * clock)
    in_lds = at_once * work.lds_bytes / (_LDS_BYTES_A_CLOCK * clock)
    cached = at_once * work.shared_bytes / shared.unit_bytes
    loaded = work.bytes_of_a * (1.0 + engine.narrow * (work.loads_a - 1.0))
    loaded = loaded + work.bytes_of_b * (1.0 + engine.narrow * (work.loads_b - 1.0))
    issued = at_once * loaded / engine.issue_bytes * work.spills
    waiting = shared.latency_us * engine.latency / np.maximum(work.stages - 1.0, 1.0)
    outside = at_once * engine.row_us * work.rows_outside
    together = slowest(compute, in_lds, cached, issued, waiting)
    all_us = together + engine.step_us * np.sqrt(at_once) * work.sync + outside
    return Step(compute, in_lds, cached, issued, waiting, all_us)


def slowest(*times: Array) -> Array:
    """Returns the eighth root of the sum of eighth powers: the largest, or a little more where several are
    close."""
    first, *others = ((time * time) * (time * time) for time in times)
    total = first * first
    for fourth in others:
        total = total + fourth * fourth
    return np.sqrt(np.sqrt(np.sqrt(total)))
