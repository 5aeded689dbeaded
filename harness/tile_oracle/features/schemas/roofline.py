"""The roofline of a GEMM kernel as formulas: its work, tile by tile, and how long it takes.

tile_oracle.model.roofline explains them. They read a problem's sizes, a kernel's name and the hardware
features of an architecture. The constants are those that ship; the features of `gemm_pool_2` have these, so
its trained models need them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tile_oracle.features.feature_table import (
    ELEMENT_BYTES,
    Array,
    Feature,
    FeatureSchema,
    FeatureTable,
    Formula,
    power_of_two,
)
from tile_oracle.features.formulas import formulas
from tile_oracle.features.hardware import RATE
from tile_oracle.features.schemas.tile_work import (
    COPIES,
    DESCRIPTORS,
    PIECES,
    SWAPPED,
    UNEVEN,
    VARIANTS,
    WARPS,
    TileWork,
    tile_work,
)

FITTED_TO = "the times of 1,129 products on an NVIDIA H200"
"""The measurements behind the constants of engines and of what all kernels share."""
_ENGINE: Mapping[str, tuple[float, str]] = {
    "efficiency": (0.7, "share of the peak rate at the clock under load"),
    "issue_bytes": (400000.0, "bytes that a compute unit's threads load in a microsecond"),
    "narrow": (1.0, "cost of each further load where 16 bytes take several"),
    "begin_us": (1.0, "start and end of a workgroup"),
    "barriers_us": (0.05, "barriers of a step"),
    "row_us": (0.002, "time of a step for each row of a tile outside of the matrix"),
    "latency": (1.0, "factor of latency_us"),
    "memory": (1.0, "factor of memory_share"),
    "stored_bytes": (30000.0, "bytes of a result, or of sums in LDS, that a compute unit writes in a us"),
    "narrow_end": (0.3, "cost of each further store"),
    "sum_us": (1.5, "start of split-K's second pass"),
    "sum_bytes": (50000.0, "bytes that a compute unit adds up in a microsecond"),
}
"""How a class of kernels works: constant -> its value for engines that were not fitted, and its meaning."""
# Fitted to FITTED_TO, in the order of _ENGINE.
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
_BY_GROUPS = (COPIES, PIECES, DESCRIPTORS, SWAPPED, UNEVEN, WARPS, *VARIANTS)


def _of_engine(place: int, otherwise: float) -> Formula:
    def constant(name: str) -> float:
        fitted = _FITTED.get(tile_work(name).engine)
        return otherwise if fitted is None else fitted[place]

    return lambda t: t.number_of("kernel", constant)


def _of_kernel(read: Callable[[TileWork], float]) -> Formula:
    return lambda t: t.number_of("kernel", lambda name: float(read(tile_work(name))))


def _read_by_groups(one: TileWork) -> float:
    return one.read_by_groups if one.engine in _BY_GROUPS else one.read_by_waves


_KERNEL: Mapping[str, tuple[Callable[[TileWork], float], str]] = {
    "tile_m": (lambda one: one.tile[0], "rows of a tile"),
    "tile_n": (lambda one: one.tile[1], "columns of a tile"),
    "tile_k": (lambda one: one.tile[2], "depth of a step"),
    "named_stages": (lambda one: one.stages, "buffers of tiles"),
    "waves": (lambda one: one.waves, "waves of a workgroup"),
    "parts": (lambda one: one.parts, "parts of the depth"),
    "streams": (lambda one: one.streams, "the steps of all tiles are divided evenly over the compute units"),
    "most_resident": (lambda one: one.resident or 8.0, "most workgroups that a compute unit runs at once"),
    "wide": (lambda one: one.wide, "operands are read by wide loads whatever their alignment"),
    "cluster_m": (lambda one: one.cluster[0], "rows of workgroups of a cluster"),
    "cluster_n": (lambda one: one.cluster[1], "columns of workgroups of a cluster"),
    "by_library": (lambda one: one.engine in VARIANTS, "one of cuBLASLt's kernels for Hopper"),
    "in_rows": (lambda one: one.in_rows, "sums of every element of a step"),
    "read_by_waves": (lambda one: one.read_by_waves, "elements that waves read from LDS for a step along K"),
    "read_by_groups": (_read_by_groups, "the same of matrix instructions of warp groups"),
    "triton": (lambda one: one.is_triton, "a kernel of Triton"),
}


def slowest(t: FeatureTable, *times: Array) -> Array:
    """Returns the eighth root of the sum of eighth powers: the largest, or a little more where several are
    close."""
    first, *others = ((time * time) * (time * time) for time in times)
    total = first * first
    for fourth in others:
        total = total + fourth * fourth
    return np.sqrt(np.sqrt(np.sqrt(total)))


def _rate(t: FeatureTable) -> Array:
    """Returns the operations of a compute unit in a clock, 0 where the data type's peak rate is unknown."""
    return t.number_of("dtype", lambda word: t.hardware.get(RATE + word, 0.0))


# LDS has 32 banks of 4 bytes: "CUDA C++ Programming Guide", compute capability 9.0; "CDNA 3 Instruction Set".
# Clusters of 8 and 16 workgroups fit a GPC of 16 to 18 compute units in whole multiples of 8 and 16. Triton's
# copies are wide only where all extents are multiples of 16 elements; other kernels access as wide as the
# operand's rows allow. Triton keeps an address of two registers for each element that it cannot load in one
# piece with others: beyond 200 registers of a thread loads wait for spilled values.
_WORK = formulas(
    """
unit_flops = rate  # operations of a compute unit in a clock, 0 if unknown
memory_bytes = 1000 * hw_memory_gb_s  # bytes that the memory moves in a microsecond, 0 if unknown
size = dtype  # bytes of an element of A and B
result_size = maximum(size, 2)  # bytes of an element of C
units = hw_num_cus  # compute units
cache_bytes = 1024 * maximum(hw_l2_cache_kb * hw_num_xcd, hw_l3_cache_kb)  # bytes of the shared cache
values = M * N  # elements of the result
depth = K  # depth of the product
bytes_a = M * K * size  # bytes of A
bytes_b = K * N * size  # bytes of B
bytes_c = M * N * result_size  # bytes of C
all_bytes = bytes_a + bytes_b + bytes_c  # bytes of the three
tiles_m = ceil(M / tile_m)  # tiles along M
tiles_n = ceil(N / tile_n)  # tiles along N
tiles = tiles_m * tiles_n  # tiles of the result
all_steps = ceil(K / tile_k)  # steps of a tile
cluster = cluster_m * cluster_n  # workgroups of a cluster
in_clusters = ceil(tiles_m / cluster_m) * cluster_m * ceil(tiles_n / cluster_n) * cluster_n
    # tiles with those that fill up the clusters
slots = maximum(where(cluster >= 8, floor(units / 16) * 16, units // cluster * cluster), 1)
    # compute units that whole clusters fill
groups = where(streams, minimum(units, tiles * all_steps), in_clusters * parts)  # workgroups
steps = where(streams, ceil(tiles * all_steps / units), ceil(all_steps / parts))  # steps of a workgroup
ends = where(streams, tiles / units + 1, 1.0)  # tiles of a workgroup's share
summed = maximum(streams, parts > 1)  # partial results are added up
tile_values = tile_m * tile_n  # elements of a tile of the result
tile_flops = 2 * tile_m * tile_n * tile_k  # operations of a step
tile_bytes = (tile_m + tile_n) * tile_k * size  # bytes of a step's operands
fitting_stages = minimum(maximum(floor(hw_lds_limit / tile_bytes), 2), 16)  # buffers that fit in LDS
stages = where((named_stages == 0) & (by_library > 0), fitting_stages, named_stages)
    # buffers of tiles; as many as fit where the kernel does not say
useful_m = minimum(tile_m, M)  # rows of a tile inside of the matrix
useful_n = minimum(tile_n, N)  # columns of a tile inside of the matrix
useful_bytes = (useful_m + useful_n) * tile_k * size  # bytes of a step that are inside
shared_bytes = (useful_m / cluster_n + useful_n / cluster_m) * tile_k * size
    # bytes of a step that no other workgroup of the cluster loads
bytes_of_a = tile_m * tile_k * size  # bytes of a step's part of A
bytes_of_b = tile_n * tile_k * size  # bytes of a step's part of B
rows_outside = tile_m - useful_m + tile_n - useful_n  # rows and columns of a tile outside of the matrix
end_values = where(in_rows, tile_m * tile_n * tile_k, useful_m * useful_n)  # values at a workgroup's end
end_bytes = end_values * result_size * where(summed, 4 / result_size, 1.0)
    # bytes that a workgroup writes, or adds up in LDS, at its end
sync = where(in_rows, waves / 4, 1.0)  # waves that meet at a step's barriers, in units of 4
read = where(hw_warp_groups > 0, read_by_groups, read_by_waves)  # elements read from LDS for a step along K
lds_bytes = (read + tile_m + tile_n) * tile_k * size  # bytes that a step moves to and from LDS
sums = tile_m * tile_n  # sums of a workgroup
registers = where(in_rows, sums * tile_k * 1.5, sums * 1.25) + waves * hw_wavefront_size * 48
    # registers of a workgroup, with those of operands and addresses
room = minimum(
    minimum(
        hw_lds_limit / maximum(stages * (tile_m + tile_n) * tile_k * size, 1),
        hw_registers_per_lane * (hw_simds_per_cu * hw_wavefront_size) / registers
    ),
    hw_max_waves_per_cu / waves
)  # workgroups that fit on a compute unit, by their buffers, sums and waves
resident = minimum(maximum(floor(room), 1), most_resident)  # workgroups that a compute unit runs at once
row_a = where(layout in ("crr", "ccr"), M, K)  # contiguous elements of A
row_b = where(layout in ("rcr", "ccr"), K, N)  # contiguous elements of B
most = 16 / size  # elements of 16 bytes
aligned_c = mod(N, 16) == 0  # rows of C are whole multiples of 16 elements
aligned = (mod(row_a, 16) == 0) & (mod(row_b, 16) == 0) & (mod(N, 16) == 0)  # all rows are
loads_a = where(wide, 1.0, accesses(row_a, aligned))  # loads for 16 bytes of A
loads_b = where(wide, 1.0, accesses(row_b, aligned))  # loads for 16 bytes of B
stores = accesses(N, aligned_c)  # stores for 16 bytes of C
loads = maximum(loads_a, loads_b)  # loads for 16 bytes of an operand
threads = waves * hw_wavefront_size  # threads of a workgroup
much = maximum((sums / threads + 2 * ((tile_m + tile_n) * tile_k / threads)) / 200, 1)
    # registers of a thread over those that it has
spills = where((triton > 0) & (loads > 1), much * much, 1.0)  # slowdown of loads of single elements
""",
    rate=_rate,
    accesses=lambda t, row, wide: np.where(
        t.triton == 1, np.where(wide == 1, 1.0, t.most), t.most / np.minimum(power_of_two(row), t.most)
    ),
)
"""The work of a problem with a kernel."""


def _step(at_once: str, end: str = "") -> tuple[Feature, ...]:
    """Returns microseconds of a step while a compute unit runs `at_once` workgroups. end: of the names."""
    return formulas(
        f"""
compute_us{end} = {at_once} * tile_flops / (efficiency * peak * clock)  # of matrix instructions
lds_us{end} = {at_once} * lds_bytes / (128 * clock)  # of the traffic to LDS, 128 bytes a clock
cached_us{end} = {at_once} * shared_bytes / unit_bytes  # of the traffic to the caches
issued_us{end} = {at_once} * loaded_bytes / issue_bytes * spills  # of issuing loads
step_us{end} = (
    slowest(compute_us{end}, lds_us{end}, cached_us{end}, issued_us{end}, waiting_us)
    + barriers_us * sqrt({at_once}) * sync + {at_once} * row_us * rows_outside
)  # of the step
""",
        slowest=slowest,
    )


_TIME = (
    *formulas("""
launch_us = 0.902  # of a launch
latency_us = 0.46  # of a load from memory
memory_share = 0.771  # of the memory's bandwidth that is reached
unit_bytes = 142000.0  # bytes that a compute unit reads from the caches in a microsecond
caches_bytes = 10200000.0  # bytes that all of them read in a microsecond
warm = 0.496  # share of the cache up to which matrices stay in it from one run to the next
reread = 0.3  # share of an operand beyond the cache that further rounds read again
cluster_us = 0.0461  # start of a cluster, for each doubling
part_us = 0.102  # to add up one more part of a streamed tile
peak = where(unit_flops > 0, unit_flops, 1.0)  # 1 for an unknown rate, so that every time is finite
bandwidth = where(memory_bytes > 0, memory_bytes, 1.0)  # the same of the memory
clock = where(hw_max_clock_mhz > 0, hw_max_clock_mhz, 1.0)  # clocks in a microsecond
on_unit = ceil(groups / slots)  # workgroups of a compute unit
at_once = minimum(resident, on_unit)  # those that it runs at once
full = floor(on_unit / at_once)  # rounds of so many
rest = on_unit - full * at_once  # workgroups of the last round
last = maximum(rest, 1)  # at least 1
start_us = begin_us + latency_us * latency + cluster_us * log2(cluster)  # of a workgroup
stored_us = end_bytes / stored_bytes * (1 + narrow_end * (stores - 1))  # of writing a tile
loaded_bytes = bytes_of_a * (1 + narrow * (loads_a - 1)) + bytes_of_b * (1 + narrow * (loads_b - 1))
    # bytes of a step, more where loads are narrow
waiting_us = latency_us * latency / maximum(stages - 1, 1)  # of a load's latency
"""),
    *_step("at_once"),
    *_step("last", "_of_last"),
    *formulas(
        """
many_us = steps * step_us + ends * (start_us + at_once * stored_us)  # of a full round
last_us = steps * step_us_of_last + start_us + rest * stored_us  # of the last round
busy_us = full * many_us + where(rest > 0, last_us, 0.0)  # of the compute units' rounds
filled = all_bytes / (warm * cache_bytes)  # matrices over the part of the cache that stays warm
fourth = (filled * filled) * (filled * filled)  # its fourth power
away = fourth / (1 + fourth)  # share of the matrices that is not in the cache when a launch begins
beyond = where(bytes_b > cache_bytes, bytes_b, 0.0)  # bytes of B if it is larger than the cache
again = maximum(ceil(tiles_m / sqrt(units * at_once)) - 1, 0) * beyond * reread  # bytes that are read again
memory_us = away * (all_bytes + again) / (minimum(memory_share * memory, 1) * bandwidth)
    # of what does not stay in the cache from one run to the next
added = (parts + 1) * values / units  # values that a compute unit adds up
streamed = (units / tiles + 1) * ceil(tiles / units) * tile_values
    # the same of a streamed tile, whose parts a program adds up one after the other
one_by_one = where(streams, groups / tiles * part_us, 0.0)  # of its parts
second_us = where(summed, sum_us + where(streams, streamed, added) * 4 / sum_bytes + one_by_one, 0.0)
    # to add up the parts of split-K or stream-K
total_us = launch_us + slowest(busy_us, memory_us, groups * steps * shared_bytes / caches_bytes) + second_us
    # of the kernel
least_us = launch_us + slowest(
    2 * values * depth / (peak * clock * units), away * all_bytes / (memory_share * bandwidth),
    all_bytes / caches_bytes
)  # without tiles: the launch, and the slowest of all operations and of the matrices' ways
""",
        slowest=slowest,
    ),
)
"""Microseconds, and where they go."""
ROOFLINE = FeatureSchema(
    "gemm_roofline",
    "gemm_universal",
    _TIME,
    (
        *(Feature(name, _of_kernel(read), meaning) for name, (read, meaning) in _KERNEL.items()),
        *(
            Feature(name, _of_engine(place, otherwise), meaning)
            for place, (name, (otherwise, meaning)) in enumerate(_ENGINE.items())
        ),
        *_WORK,
    ),
    {"dtype": ELEMENT_BYTES},
)
"""The formulas, with the constants that all kernels share."""
