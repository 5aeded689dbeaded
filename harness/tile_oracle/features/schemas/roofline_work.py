"""The work of a GEMM on a machine, tile by tile: the input of the roofline's formulas (roofline_time).

Read from a problem's sizes, a kernel's name and the hardware features of an architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.features.columns import Columns
from tile_oracle.features.feature_table import ELEMENT_BYTES, Array, power_of_two
from tile_oracle.features.hardware import RATE
from tile_oracle.features.schemas.tile_work import (
    COPIES,
    DESCRIPTORS,
    ENGINES,
    PIECES,
    SWAPPED,
    UNEVEN,
    VARIANTS,
    WARPS,
    TileWork,
    tile_work,
)

_VECTOR_BYTES = 16.0
_MOST_RESIDENT = 8.0
_OTHER_REGISTERS = 48.0
_SUM_SHARE = 1.25
"""Registers of a tile's sums, with those for its operands, over the number of sums."""
_REGISTERS = 200.0
"""Registers of a thread beyond which its loads wait for spilled values. Triton keeps an address of two
registers for each element that it cannot load in one piece with others."""
_BY_GROUPS = (COPIES, PIECES, DESCRIPTORS, SWAPPED, UNEVEN, WARPS, *VARIANTS)
_ROW_SHARE = 1.5
"""The same for sums of every element of a step."""
_FEWEST_STAGES, _MOST_STAGES = 2.0, 16.0
_LARGE_CLUSTER, _GPC_UNITS = 8.0, 16.0
"""Clusters of 8 and 16 workgroups fit a GPC of 16 to 18 compute units in whole multiples of 8 and 16."""
_SYNC_WAVES = 4.0
_SUM_BYTES = 4.0
"""Of a partial result."""


@dataclass(frozen=True)
class Machine:
    """What the formulas read of an architecture. rates: operations of a compute unit in a clock, by data
    type; without those of unknown types. registers: of a compute unit. warp_groups: matrix instructions of
    warp groups read both operands from shared memory."""

    units: float
    clock_mhz: float
    memory_gb_s: float
    cache_bytes: float
    lds_bytes: float
    registers: float
    wave: float
    most_waves: float
    rates: Mapping[str, float]
    warp_groups: bool

    @classmethod
    def of(cls, hardware: Mapping[str, float]) -> Machine:
        """hardware: the features of an architecture (`hardware_features`)."""
        lanes = hardware["hw_simds_per_cu"] * hardware["hw_wavefront_size"]
        caches = hardware["hw_l2_cache_kb"] * hardware["hw_num_xcd"], hardware["hw_l3_cache_kb"]
        rates = {name: hardware.get(RATE + name, 0.0) for name in ELEMENT_BYTES}
        return cls(
            units=hardware["hw_num_cus"],
            clock_mhz=hardware["hw_max_clock_mhz"],
            memory_gb_s=hardware["hw_memory_gb_s"],
            cache_bytes=1024.0 * max(caches),
            lds_bytes=hardware["hw_lds_limit"],
            registers=hardware["hw_registers_per_lane"] * lanes,
            wave=hardware["hw_wavefront_size"],
            most_waves=hardware["hw_max_waves_per_cu"],
            rates={name: rate for name, rate in rates.items() if rate > 0},
            warp_groups=hardware["hw_warp_groups"] > 0,
        )


@dataclass(frozen=True)
class Work:
    """The work of each row: a problem with a kernel. Arrays of shape (rows,). slots: compute units that whole
    clusters fill. shared_bytes: those of a step that no other workgroup of the cluster loads. loads_a,
    loads_b, stores: accesses for 16 bytes of A, B and C. end_bytes: what a workgroup writes, or adds up in
    LDS, at its end. ends: tiles of a workgroup's share. sync: waves that meet at a step's barriers, in units
    of 4."""

    engine: Any
    units: float
    slots: Array
    cluster: Array
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
    shared_bytes: Array
    bytes_of_a: Array
    bytes_of_b: Array
    end_bytes: Array
    ends: Array
    sync: Array
    lds_bytes: Array
    rows_outside: Array
    loads: Array
    loads_a: Array
    loads_b: Array
    stores: Array
    spills: Array
    values: Array
    depth: Array
    bytes_a: Array
    bytes_b: Array
    bytes_c: Array
    unit_flops: Array
    clock_mhz: float
    memory_bytes: float
    cache_bytes: float

    @classmethod
    def of(cls, rows: Columns, machine: Machine) -> Work:
        codes, names = pd.factorize(np.asarray(rows["kernel"], dtype=object))
        kernels = [tile_work(str(name)) for name in names]
        m, n, k = (rows[name].astype(np.float64) for name in ("M", "N", "K"))
        kinds = pd.factorize(np.asarray(rows["dtype"], dtype=object))
        size = np.array([ELEMENT_BYTES[str(word)] for word in kinds[1]])[kinds[0]]
        of_kernel = _of_kernels(kernels, codes)
        tile_m, tile_n, tile_k = of_kernel["tile_m"], of_kernel["tile_n"], of_kernel["tile_k"]
        parts, units = of_kernel["parts"], machine.units
        tiles_m, tiles_n, all_steps = np.ceil(m / tile_m), np.ceil(n / tile_n), np.ceil(k / tile_k)
        tiles = tiles_m * tiles_n
        of_kernel["stages"] = stages = _stages(of_kernel, size, machine)
        streams = of_kernel["streams"] > 0
        cluster_m, cluster_n = of_kernel["cluster_m"], of_kernel["cluster_n"]
        in_clusters = np.ceil(tiles_m / cluster_m) * cluster_m * np.ceil(tiles_n / cluster_n) * cluster_n
        loads_a, loads_b, stores = _accesses(rows, m, n, k, size, of_kernel)
        loads = np.maximum(loads_a, loads_b)
        rates = np.array([machine.rates.get(str(word), 0.0) for word in kinds[1]])[kinds[0]]
        reads = "by_groups" if machine.warp_groups else "by_waves"
        useful_m, useful_n = np.minimum(tile_m, m), np.minimum(tile_n, n)
        result_size = np.maximum(size, 2.0)
        in_rows, summed = of_kernel["in_rows"] > 0, streams | (parts > 1.0)
        end_values = np.where(in_rows, tile_m * tile_n * tile_k, useful_m * useful_n)
        return cls(
            engine=of_kernel["engine"].astype(np.int64),
            units=units,
            slots=_slots(cluster_m * cluster_n, units),
            cluster=cluster_m * cluster_n,
            groups=np.where(streams, np.minimum(units, tiles * all_steps), in_clusters * parts),
            steps=np.where(streams, np.ceil(tiles * all_steps / units), np.ceil(all_steps / parts)),
            stages=stages,
            resident=_resident(of_kernel, size, machine),
            parts=parts,
            summed=summed,
            streams=streams,
            tiles=tiles,
            tile_values=tile_m * tile_n,
            tiles_m=tiles_m,
            tile_flops=2.0 * tile_m * tile_n * tile_k,
            tile_bytes=(tile_m + tile_n) * tile_k * size,
            useful_bytes=(useful_m + useful_n) * tile_k * size,
            shared_bytes=(useful_m / cluster_n + useful_n / cluster_m) * tile_k * size,
            bytes_of_a=tile_m * tile_k * size,
            bytes_of_b=tile_n * tile_k * size,
            end_bytes=end_values * result_size * np.where(summed, _SUM_BYTES / result_size, 1.0),
            ends=np.where(streams, tiles / units + 1.0, 1.0),
            sync=np.where(in_rows, of_kernel["waves"] / _SYNC_WAVES, 1.0),
            lds_bytes=(of_kernel[reads] + tile_m + tile_n) * tile_k * size,
            rows_outside=tile_m - useful_m + tile_n - useful_n,
            loads=loads,
            loads_a=loads_a,
            loads_b=loads_b,
            stores=stores,
            spills=np.where((of_kernel["triton"] > 0) & (loads > 1.0), _spills(of_kernel, machine), 1.0),
            values=m * n,
            depth=k,
            bytes_a=m * k * size,
            bytes_b=k * n * size,
            bytes_c=m * n * result_size,
            unit_flops=rates,
            clock_mhz=machine.clock_mhz,
            memory_bytes=1000.0 * machine.memory_gb_s,
            cache_bytes=machine.cache_bytes,
        )

    def at_known_rates(self) -> Work:
        """Returns the work with a rate of 1 in place of unknown ones, so that every time is finite."""
        rates, clock_mhz = np.where(self.unit_flops > 0, self.unit_flops, 1.0), self.clock_mhz or 1.0
        return replace(self, unit_flops=rates, memory_bytes=self.memory_bytes or 1.0, clock_mhz=clock_mhz)


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
        "cluster_m": [one.cluster[0] for one in kernels],
        "cluster_n": [one.cluster[1] for one in kernels],
        "by_library": [float(one.engine in VARIANTS) for one in kernels],
        "in_rows": [float(one.in_rows) for one in kernels],
        "by_waves": [one.read_by_waves for one in kernels],
        "by_groups": [
            one.read_by_groups if one.engine in _BY_GROUPS else one.read_by_waves for one in kernels
        ],
        "triton": [float(one.is_triton) for one in kernels],
    }
    return {name: np.array(values)[codes] for name, values in table.items()}


def _spills(kernels: Mapping[str, Array], machine: Machine) -> Array:
    """Returns the slowdown of loads of single elements: the square of the registers of a thread over
    _REGISTERS."""
    threads = kernels["waves"] * machine.wave
    sums = kernels["tile_m"] * kernels["tile_n"] / threads
    loaded = (kernels["tile_m"] + kernels["tile_n"]) * kernels["tile_k"] / threads
    much = np.maximum((sums + 2.0 * loaded) / _REGISTERS, 1.0)
    return np.asarray(much * much)


def _slots(cluster: Array, units: float) -> Array:
    """Returns the number of compute units that clusters of this size fill."""
    large = np.floor(units / _GPC_UNITS) * _GPC_UNITS
    return np.asarray(np.maximum(np.where(cluster >= _LARGE_CLUSTER, large, units // cluster * cluster), 1.0))


def _stages(kernels: Mapping[str, Array], size: Array, machine: Machine) -> Array:
    """Buffers of each kernel; as many as fit where the kernel does not say."""
    step = (kernels["tile_m"] + kernels["tile_n"]) * kernels["tile_k"] * size
    fitting = np.clip(np.floor(machine.lds_bytes / step), _FEWEST_STAGES, _MOST_STAGES)
    automatic = (kernels["stages"] == 0) & (kernels["by_library"] > 0)
    return np.asarray(np.where(automatic, fitting, kernels["stages"]))


def _resident(kernels: Mapping[str, Array], size: Array, machine: Machine) -> Array:
    """Workgroups of each kernel that a compute unit runs at once, by their buffers, sums and waves."""
    buffers = kernels["stages"] * (kernels["tile_m"] + kernels["tile_n"]) * kernels["tile_k"] * size
    registers = machine.registers
    sums = kernels["tile_m"] * kernels["tile_n"]
    used = np.where(kernels["in_rows"] > 0, sums * kernels["tile_k"] * _ROW_SHARE, sums * _SUM_SHARE)
    used = used + kernels["waves"] * machine.wave * _OTHER_REGISTERS
    fitting = np.minimum(machine.lds_bytes / np.maximum(buffers, 1.0), registers / used)
    fitting = np.minimum(fitting, machine.most_waves / kernels["waves"])
    asked = np.where(kernels["resident"] > 0, kernels["resident"], _MOST_RESIDENT)
    return np.asarray(np.clip(np.floor(fitting), 1.0, asked))


def _accesses(
    rows: Columns, m: Array, n: Array, k: Array, size: Array, kernels: Mapping[str, Array]
) -> tuple[Array, Array, Array]:
    """Loads for 16 bytes of A and of B, and stores for 16 bytes of C. Triton's copies are wide only where all
    extents are multiples of 16 elements; other kernels access as wide as the operand's rows allow."""
    layouts, words = pd.factorize(np.asarray(rows["layout"], dtype=object))
    a_by_columns = np.array([str(word)[:1] == "c" for word in words])[layouts]
    b_by_columns = np.array([str(word)[1:2] == "c" for word in words])[layouts]
    row_a, row_b = np.where(a_by_columns, m, k), np.where(b_by_columns, k, n)
    most = _VECTOR_BYTES / size
    aligned_c = np.mod(n, 16) == 0
    aligned = (np.mod(row_a, 16) == 0) & (np.mod(row_b, 16) == 0) & aligned_c
    triton = kernels["triton"] > 0

    def accesses(row: Array, wide: Array) -> Array:
        others = most / np.minimum(power_of_two(row), most)
        return np.where(triton, np.where(wide, 1.0, most), others)

    by_descriptors = kernels["wide"] > 0
    loads = (np.where(by_descriptors, 1.0, accesses(row, aligned)) for row in (row_a, row_b))
    return (*loads, accesses(n, aligned_c))  # type: ignore[return-value]
