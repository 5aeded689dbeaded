"""An analytic model of a GEMM kernel's time: no measurement of a kernel is needed.

It extends the roofline (Williams, Waterman and Patterson, 2009) by what tiles cost. A compute unit runs its
share of the tiles in rounds; a step of a tile takes as long as the slowest of

- its matrix instructions: the tile's operations / (peak rate x the engine's efficiency);
- its traffic to LDS (shared memory), at 128 bytes a clock: the tiles are written once and read by all waves;
- its loads, at the bandwidth of a compute unit to the caches, and at the rate at which threads issue them;
- the latency of a load / the steps that are loaded ahead (Little's law),

softened, since they overlap imperfectly: the eighth root of the sum of eighth powers. Partial tiles, partial
rounds and partial steps cost as much as full ones. The matrices move once through the memory, or more often
where they do not stay in the cache. A launch, a workgroup's start and end, and split-K's second pass are
added. The peak rates are those of kernels/arch_specs.json; all other constants are below, in terms of these.
Those of engines that have run on an H200 were fitted (`fit_roofline`) to times there, on half of 342
problems of gemm_training; fitted constants also make up for what the formula lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import ELEMENT_BYTES, Array
from tile_oracle.features.groups import group_codes
from tile_oracle.model.physics import LEAST_MS, nearness
from tile_oracle.model.tile_work import (
    COPIES,
    DESCRIPTORS,
    ENGINES,
    LIBRARY,
    OLDER,
    PLAIN,
    ROWS,
    SCALAR,
    SMALL,
    TileWork,
    tile_work,
)

NAME = "roofline"
_VECTOR_BYTES = 16.0
_MOST_RESIDENT = 8.0
_FP32_BYTES = 4.0
_OTHER_REGISTERS = 48.0
_SUM_SHARE = 1.25
"""Registers of a tile's sums, with those for its operands, over the number of sums."""
_PRIOR = 0.03
"""Weight of a constant's distance from its default, so that one that no time depends on stays."""
_SLOWEST = 12.0
"""Slower kernels than that, relative to a problem's fastest, are not fitted to."""
_SHARES = ("efficiency", "clock_share", "memory_share")
"""Constants that are at most 1."""
_RANGE = 20.0
"""A fitted constant stays within this factor of its default."""
_REGISTERS = 200.0
"""Registers of a thread beyond which its loads wait for spilled values. Triton keeps an address of two
registers for each element that it cannot load in one piece with others."""
_LDS_BYTES_A_CLOCK = 128.0
"""32 banks of 4 bytes: "CUDA C++ Programming Guide", compute capability 9.0; "CDNA 3 Instruction Set"."""
_BY_GROUPS = (COPIES, DESCRIPTORS, LIBRARY)
_GROUP_ARCH = "sm_90"
"""Its matrix instructions of warp groups read both operands from shared memory."""


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


def _default_engines() -> dict[str, Engine]:
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
class RooflineModel:
    """A member of a model (model.ranker.Member) for GEMM. arch: the architecture whose peak rates hold."""

    arch: str
    shared: Constants = field(default_factory=Constants)
    engines: Mapping[str, Engine] = field(default_factory=_default_engines)

    name = NAME
    relative = False

    def log_time(self, rows: Columns, hardware: Mapping[str, float], threads: int = 1) -> Array:
        """ln(latency in ms) of every row."""
        time_us = self._time_us(_Work.of(rows, self._arch))
        return exact_math.log(np.maximum(time_us / 1000.0, LEAST_MS))

    @cached_property
    def _arch(self) -> Arch:
        arch = load_arch(self.arch)
        if arch.peak is None:
            raise ModelError(f"the peak rates of {self.arch} are not in kernels/arch_specs.json")
        return arch

    def _time_us(self, work: _Work) -> Array:
        shared = self.shared
        engine = _Columns.of([self.engines[name] for name in ENGINES], work.engine)
        units = work.units
        on_unit = np.ceil(work.groups / units)
        at_once = np.minimum(work.resident, on_unit)
        full = np.floor(on_unit / at_once)
        rest = on_unit - full * at_once
        end_us = engine.start_us + shared.latency_us
        many = work.steps * _step_us(work, engine, shared, at_once) + end_us
        few = work.steps * _step_us(work, engine, shared, np.maximum(rest, 1.0)) + end_us
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
        total = shared.launch_us + _slowest(busy_us, memory_us) + np.where(work.summed, second_us, 0.0)
        return np.asarray(total)

    def as_json(self) -> dict[str, Any]:
        """The constants; the inverse of `from_json`."""
        engines = {name: asdict(engine) for name, engine in self.engines.items()}
        return {"arch": self.arch, "shared": asdict(self.shared), "engines": engines}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RooflineModel:
        """Raises ModelError for what `as_json` cannot have returned."""
        try:
            shared = Constants(**{key: _positive(number) for key, number in value["shared"].items()})
            engines = {
                str(name): Engine(**{key: _positive(number) for key, number in one.items()})
                for name, one in value["engines"].items()
            }
            arch = str(value["arch"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the roofline model cannot be read: {error!r}") from None
        if set(engines) != set(ENGINES):
            raise ModelError(
                f"the roofline model has constants for {', '.join(engines)}, not {', '.join(ENGINES)}"
            )
        return cls(arch, shared, engines)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise ValueError(f"{value!r} is not a positive number")
    return float(value)


def _slowest(*times: Array) -> Array:
    """The eighth root of the sum of eighth powers: the largest, or a little more where several are close."""
    total = np.zeros(len(times[0]))
    for time in times:
        fourth = (time * time) * (time * time)
        total = total + fourth * fourth
    return np.asarray(np.sqrt(np.sqrt(np.sqrt(total))))


def _step_us(work: _Work, engine: _Columns, shared: Constants, at_once: Array) -> Array:
    """Microseconds of a step while a compute unit runs this many workgroups at once."""
    clock = shared.clock_share * work.clock_mhz
    compute = at_once * work.tile_flops / (engine.efficiency * work.unit_flops * clock)
    in_lds = at_once * work.lds_bytes / (_LDS_BYTES_A_CLOCK * clock)
    cached = at_once * work.useful_bytes / shared.unit_bytes
    issued = at_once * work.tile_bytes / engine.issue_bytes * (1.0 + shared.narrow * (work.loads - 1.0))
    waiting = shared.latency_us / np.maximum(work.stages - 1.0, 1.0)
    outside = at_once * engine.row_us * work.rows_outside
    return (
        _slowest(compute, in_lds, cached, issued * work.spills, waiting)
        + engine.step_us * np.sqrt(at_once)
        + outside
    )


@dataclass(frozen=True)
class _Columns:
    """The constants of each row's engine."""

    efficiency: Array
    issue_bytes: Array
    start_us: Array
    step_us: Array
    row_us: Array

    @classmethod
    def of(cls, engines: list[Engine], index: Any) -> _Columns:
        return cls(
            **{one.name: np.array([getattr(e, one.name) for e in engines])[index] for one in fields(Engine)}
        )


@dataclass(frozen=True)
class _Work:
    """The work of each row: a problem with a kernel. Arrays of shape (rows,)."""

    engine: Any
    units: float
    groups: Array
    steps: Array
    stages: Array
    resident: Array
    parts: Array
    summed: Any
    streams: Any
    tiles: Array
    tile_values: Array
    tiles_m: Array
    tile_flops: Array
    tile_bytes: Array
    useful_bytes: Array
    lds_bytes: Array
    rows_outside: Array
    loads: Array
    spills: Array
    values: Array
    bytes_a: Array
    bytes_b: Array
    bytes_c: Array
    unit_flops: Array
    clock_mhz: float
    memory_bytes: float
    cache_bytes: float

    @classmethod
    def of(cls, rows: Columns, arch: Arch) -> _Work:
        codes, names = pd.factorize(np.asarray(rows["kernel"], dtype=object))
        kernels = [tile_work(str(name)) for name in names]
        m, n, k = (np.asarray(rows[name], dtype=np.float64) for name in ("M", "N", "K"))
        kinds = pd.factorize(np.asarray(rows["dtype"], dtype=object))
        size = np.array([ELEMENT_BYTES[str(word)] for word in kinds[1]])[kinds[0]]
        of_kernel = _of_kernels(kernels, codes)
        tile_m, tile_n, tile_k = of_kernel["tile_m"], of_kernel["tile_n"], of_kernel["tile_k"]
        parts, units = of_kernel["parts"], float(arch.hardware.num_cus)
        tiles_m, all_steps = np.ceil(m / tile_m), np.ceil(k / tile_k)
        tiles = tiles_m * np.ceil(n / tile_n)
        held = _resident(of_kernel, size, arch)
        streams = of_kernel["streams"] > 0
        groups = np.where(streams, np.minimum(units, tiles * all_steps), tiles * parts)
        steps = np.where(streams, np.ceil(tiles * all_steps / units), np.ceil(all_steps / parts))
        loads = _loads(rows, m, n, k, size, of_kernel)
        flops = arch.peak.flops_a_cu_and_clock if arch.peak is not None else {}
        rates = np.array([_rate(str(word), flops) for word in kinds[1]])[kinds[0]]
        reads = "by_groups" if arch.name == _GROUP_ARCH else "by_waves"
        useful_m, useful_n = np.minimum(tile_m, m), np.minimum(tile_n, n)
        return cls(
            engine=of_kernel["engine"].astype(np.int64),
            units=units,
            groups=groups,
            steps=steps,
            stages=of_kernel["stages"],
            resident=held,
            parts=parts,
            summed=streams | (parts > 1.0),
            streams=streams,
            tiles=tiles,
            tile_values=tile_m * tile_n,
            tiles_m=tiles_m,
            tile_flops=2.0 * tile_m * tile_n * tile_k,
            tile_bytes=(tile_m + tile_n) * tile_k * size,
            useful_bytes=(useful_m + useful_n) * tile_k * size,
            lds_bytes=(of_kernel[reads] + tile_m + tile_n) * tile_k * size,
            rows_outside=tile_m - useful_m + tile_n - useful_n,
            loads=loads,
            spills=np.where((of_kernel["triton"] > 0) & (loads > 1.0), _spills(of_kernel, arch), 1.0),
            values=m * n,
            bytes_a=m * k * size,
            bytes_b=k * n * size,
            bytes_c=m * n * np.maximum(size, 2.0),
            unit_flops=rates,
            clock_mhz=float(arch.hardware.max_clock_mhz),
            memory_bytes=1000.0 * (arch.peak.memory_gb_s if arch.peak is not None else 1),
            cache_bytes=1024.0
            * max(arch.hardware.l2_cache_kb * arch.hardware.num_xcd, arch.hardware.l3_cache_kb),
        )


def _rate(dtype: str, flops: Mapping[str, int]) -> float:
    """Operations of a compute unit in a clock."""
    if dtype not in flops:
        raise ModelError(f"the peak rate of {dtype} is not known: it has those of {', '.join(flops)}")
    return float(flops[dtype])


def _of_kernels(kernels: list[TileWork], codes: Any) -> dict[str, Array]:
    table = {
        "engine": [float(ENGINES.index(one.engine)) for one in kernels],
        **{f"tile_{axis}": [one.tile[place] for one in kernels] for place, axis in enumerate("mnk")},
        "stages": [one.stages for one in kernels],
        "waves": [one.waves for one in kernels],
        "parts": [one.parts for one in kernels],
        "streams": [float(one.streams) for one in kernels],
        "resident": [one.resident for one in kernels],
        "wide": [float(one.wide) for one in kernels],
        "by_waves": [one.read_by_waves for one in kernels],
        "by_groups": [
            one.read_by_groups if one.engine in _BY_GROUPS else one.read_by_waves for one in kernels
        ],
        "triton": [float(one.is_triton) for one in kernels],
    }
    return {name: np.array(values)[codes] for name, values in table.items()}


def _spills(kernels: Mapping[str, Array], arch: Arch) -> Array:
    """The slowdown of loads of single elements: the square of the registers of a thread over _REGISTERS."""
    threads = kernels["waves"] * arch.hardware.wavefront_size
    sums = kernels["tile_m"] * kernels["tile_n"] / threads
    loaded = (kernels["tile_m"] + kernels["tile_n"]) * kernels["tile_k"] / threads
    much = np.maximum((sums + 2.0 * loaded) / _REGISTERS, 1.0)
    return np.asarray(much * much)


def _resident(kernels: Mapping[str, Array], size: Array, arch: Arch) -> Array:
    """Workgroups of each kernel that a compute unit runs at once, by their buffers, sums and waves."""
    hardware = arch.hardware
    buffers = kernels["stages"] * (kernels["tile_m"] + kernels["tile_n"]) * kernels["tile_k"] * size
    registers = float(hardware.registers_per_lane * hardware.simds_per_cu * hardware.wavefront_size)
    used = kernels["tile_m"] * kernels["tile_n"] * _SUM_SHARE
    used = used + kernels["waves"] * hardware.wavefront_size * _OTHER_REGISTERS
    fitting = np.minimum(arch.lds_limit_bytes / np.maximum(buffers, 1.0), registers / used)
    fitting = np.minimum(fitting, hardware.max_waves_per_cu / kernels["waves"])
    asked = np.where(kernels["resident"] > 0, kernels["resident"], _MOST_RESIDENT)
    return np.asarray(np.clip(np.floor(fitting), 1.0, asked))


def _loads(rows: Columns, m: Array, n: Array, k: Array, size: Array, kernels: Mapping[str, Array]) -> Array:
    """Loads for 16 bytes of an operand. Triton's copies are wide only where all extents are multiples of
    16 elements; other kernels load as wide as the operand's rows allow."""
    layouts, words = pd.factorize(np.asarray(rows["layout"], dtype=object))
    a_by_columns = np.array([str(word)[:1] == "c" for word in words])[layouts]
    b_by_columns = np.array([str(word)[1:2] == "c" for word in words])[layouts]
    row_a, row_b = np.where(a_by_columns, m, k), np.where(b_by_columns, k, n)
    most = _VECTOR_BYTES / size
    widest = np.minimum(np.minimum(_power_of_two(row_a), _power_of_two(row_b)), most)
    aligned = (np.mod(row_a, 16) == 0) & (np.mod(row_b, 16) == 0) & (np.mod(n, 16) == 0)
    loads = np.where(kernels["triton"] > 0, np.where(aligned, 1.0, most), most / widest)
    return np.asarray(np.where(kernels["wide"] > 0, 1.0, loads))


def _power_of_two(values: Array) -> Array:
    """The largest power of two that divides each."""
    whole = values.astype(np.int64)
    return np.asarray((whole & -whole).astype(np.float64))


# ---- fitting the constants ----------------------------------------------------------------------


def fit_roofline(rows: pd.DataFrame, arch: str, start: RooflineModel | None = None) -> RooflineModel:
    """The constants that explain the times of a training table best, most of all those of fast kernels.

    rows: one row a pair, with the fields of the problem, `kernel` and `latency_ms`. The constants of engines
    without rows stay those of `start` (by default the shipped ones). Raises ModelError.
    """
    model = start or RooflineModel(arch)
    best_ms = rows.groupby("problem")["latency_ms"].transform("min")
    rows = rows[rows["latency_ms"] < _SLOWEST * best_ms]
    work = _Work.of({name: rows[name].to_numpy() for name in rows}, model._arch)
    goal = np.log(1000.0 * rows["latency_ms"].to_numpy(dtype=np.float64))
    weight = np.sqrt(nearness(goal, group_codes(rows)))
    there = {ENGINES[place] for place in np.unique(work.engine)}
    before = _numbers(model)
    free = [place for place, (owner, _) in enumerate(_places()) if owner == "" or owner in there]

    from scipy.optimize import least_squares  # not at the top: it is slow to import

    def residual(changed: Array) -> Array:
        numbers = before.copy()
        numbers[free] = changed
        error = weight * (np.log(_with_numbers(model, numbers)._time_us(work)) - goal)
        return np.concatenate([error, _PRIOR * (changed - before[free])])

    shares = np.array([name in _SHARES for _, name in _places()])[free]
    highest = np.where(shares, 1e-9, before[free] + np.log(_RANGE))
    limits = (before[free] - np.log(_RANGE), highest)
    found = least_squares(residual, before[free], loss="soft_l1", f_scale=0.1, bounds=limits, max_nfev=60)
    numbers = before.copy()
    numbers[free] = found.x
    fitted = _with_numbers(model, numbers)
    engines = {
        name: _rounded(one) if name in there else model.engines[name] for name, one in fitted.engines.items()
    }
    return replace(fitted, shared=_rounded(fitted.shared), engines=engines)


_Group = TypeVar("_Group", Constants, Engine)


def _rounded(constants: _Group) -> _Group:
    """The constants with six digits."""
    return replace(constants, **{name: float(f"{value:.6g}") for name, value in asdict(constants).items()})


def _places() -> list[tuple[str, str]]:
    """(engine, or "" for the shared constants; name) of every constant, in order."""
    shared = [("", one.name) for one in fields(Constants)]
    return [*shared, *((engine, one.name) for engine in ENGINES for one in fields(Engine))]


def _numbers(model: RooflineModel) -> Array:
    """The logarithms of all constants."""
    owners = {"": model.shared, **model.engines}
    return np.asarray(np.log(np.array([getattr(owners[owner], name) for owner, name in _places()])))


def _with_numbers(model: RooflineModel, numbers: Array) -> RooflineModel:
    values: dict[str, dict[str, float]] = {}
    for (owner, name), number in zip(_places(), np.exp(numbers), strict=True):
        values.setdefault(owner, {})[name] = float(number)
    engines = {name: Engine(**values[name]) for name in ENGINES}
    return replace(model, shared=Constants(**values[""]), engines=engines)
