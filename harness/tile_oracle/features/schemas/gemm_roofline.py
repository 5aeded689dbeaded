"""The second version of the schema of GEMM pools: the first one's columns, and the pieces of the roofline.

Trees that see where a kernel's time goes need not learn it from sizes of tiles. Times are natural logarithms,
most of them over the least time of the problem (`Roofline.least_us`), so that one split holds for problems
of all sizes. Without the peak rates of the architecture or the data type, columns of times are 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tile_oracle.features.feature_table import Array, Feature, FeatureSchema, FeatureTable, log, power_of_two
from tile_oracle.features.schemas.configuration import library_cluster, library_stages
from tile_oracle.features.schemas.gemm_pool import GEMM_POOL
from tile_oracle.features.schemas.pool_columns import BINARY
from tile_oracle.features.schemas.roofline_time import Roofline, Time
from tile_oracle.features.schemas.roofline_work import Machine, Work

_Formula = Callable[[FeatureTable], Array]
_FIXED = Roofline()
_LEAST = 1e-3
_SPLIT_SHARE = 8.0
"""Bytes of a value of the result that split-K writes and reads again: fp32, once each."""
_WIDEST = 64
_LARGE_CLUSTER = 8.0
_LARGE_CLUSTER_UNITS = 16.0
"""Clusters of 8 and 16 workgroups fit a GPC of 16 to 18 compute units in whole multiples of 8 and 16."""


def _work(t: FeatureTable) -> Work:
    words = {name: t.inputs[name] for name in ("dtype", "layout", "kernel")}
    return t.once("work", lambda: Work.of({"M": t.M, "N": t.N, "K": t.K, **words}, Machine.of(t.hardware)))


def _time(t: FeatureTable) -> Time:
    return t.once("time", lambda: _FIXED.time(_known(t)))


def _least(t: FeatureTable) -> Array:
    return t.once("least", lambda: _FIXED.least_us(_known(t)))


def _known(t: FeatureTable) -> Work:
    return t.once("known", lambda: _work(t).at_known_rates())


def _ln(value: Array) -> Array:
    return log(np.maximum(value, _LEAST))


def _of_time(formula: Callable[[Time, Work, Array], Array]) -> _Formula:
    """Returns a column of the roofline's times; 0 where the peak rates are unknown."""

    def column(t: FeatureTable) -> Array:
        work = _work(t)
        known = (work.unit_flops > 0) & (work.memory_bytes > 0)
        if not known.any():
            return np.zeros(t.length)
        return np.where(known, formula(_time(t), work, _least(t)), 0.0)

    return column


def _of_work(formula: Callable[[Work], Array]) -> _Formula:
    return lambda t: formula(_work(t))


def _share(name: str) -> _Formula:
    return _of_time(lambda time, work, least: _ln(getattr(time.step, name) / time.step.all_us))


def _alignment(field: str) -> _Formula:
    return lambda t: np.minimum(power_of_two(t[field]), _WIDEST)


def _from_library(number: Callable[[str], tuple[float, float]], place: int) -> _Formula:
    return lambda t: t.number_of("kernel", lambda name: number(name)[place])


def _over_least(name: str, what: str, formula: Callable[[Time, Work], Array]) -> Feature:
    column = _of_time(lambda time, work, least: _ln(formula(time, work) / least))
    return Feature(f"{name}_over_least", column, f"ln({what} / least time)")


_TIMES = (
    Feature("roofline", _of_time(lambda time, work, least: _ln(time.total_us)), "ln(roofline time in us)"),
    Feature("least", _of_time(lambda time, work, least: _ln(least)), "ln(least time of the problem in us)"),
    _over_least("roofline", "roofline time", lambda time, work: time.total_us),
    _over_least("busy", "time of the compute units' rounds", lambda time, work: time.busy_us),
    _over_least(
        "steps", "time of the steps of one workgroup", lambda time, work: work.steps * time.step.all_us
    ),
    _over_least("memory", "time of the memory", lambda time, work: time.memory_us),
    _over_least(
        "second",
        "time to add up the parts of split-K or stream-K",
        lambda time, work: time.second_us + 0.01,
    ),
    Feature("step", _of_time(lambda time, work, least: _ln(time.step.all_us)), "ln(time of a step in us)"),
    Feature("step_compute", _share("compute_us"), "ln(matrix instructions' share of a step)"),
    Feature("step_lds", _share("lds_us"), "ln(share of the traffic to LDS)"),
    Feature("step_cached", _share("cached_us"), "ln(share of the traffic to the caches)"),
    Feature("step_issued", _share("issued_us"), "ln(share of issuing loads)"),
    Feature("step_waiting", _share("waiting_us"), "ln(share of a load's latency)"),
)
_WORK = (
    Feature("resident", _of_work(lambda w: w.resident), "workgroups that a compute unit runs at once"),
    Feature(
        "waves_of_workgroups",
        _of_work(lambda w: _ln(w.groups / w.units / w.resident)),
        "ln(workgroups / those that the GPU runs at once)",
    ),
    Feature("loads", _of_work(lambda w: w.loads), "loads for 16 bytes of an operand"),
    Feature("spills", _of_work(lambda w: w.spills), "slowdown of loads by spilled registers"),
    Feature("buffers", _of_work(lambda w: _ln(w.stages * w.tile_bytes)), "ln(bytes of all buffers of tiles)"),
    Feature(
        "loaded_again",
        _of_work(lambda w: _ln(w.groups * w.steps * w.useful_bytes / (w.bytes_a + w.bytes_b))),
        "ln(bytes that all workgroups load / bytes of both operands)",
    ),
    Feature(
        "split_traffic",
        _of_work(
            lambda w: _ln(
                (1.0 + np.where(w.parts > 1, w.parts * w.values * _SPLIT_SHARE, 0.0))
                / (w.bytes_a + w.bytes_b + w.bytes_c)
            )
        ),
        "ln(bytes of split-K's partial results / bytes of the matrices)",
    ),
    Feature("depth_of_a_part", _of_work(lambda w: _ln(w.depth / w.parts)), "ln(K of one part)"),
    Feature("rows_of_a_tile", lambda t: t.M / _work(t).tiles_m, "mean useful rows of a tile"),
    Feature("columns_of_a_tile", lambda t: t.N / _tiles_n(t), "mean useful columns of a tile"),
    Feature("aligned_m", _alignment("M"), "power of two that divides M, to 64"),
    Feature("aligned_n", _alignment("N"), "power of two that divides N, to 64"),
    Feature("aligned_k", _alignment("K"), "power of two that divides K, to 64"),
)


def _tiles_n(t: FeatureTable) -> Array:
    work = _work(t)
    return work.tiles / work.tiles_m


def _clustered(t: FeatureTable) -> Array:
    """Tiles with those that fill up the clusters."""
    rows, columns = t.cluster_m, t.cluster_n
    work = _work(t)
    over_m, over_n = np.ceil(work.tiles_m / rows) * rows, np.ceil(_tiles_n(t) / columns) * columns
    return over_m * over_n * work.parts


def _slots(t: FeatureTable) -> Array:
    """Workgroups that the GPU runs at once: whole clusters on its compute units."""
    work, size = _work(t), t.cluster_m * t.cluster_n
    units = np.where(
        size >= _LARGE_CLUSTER,
        np.floor(work.units / _LARGE_CLUSTER_UNITS) * _LARGE_CLUSTER_UNITS,
        np.floor(work.units / size) * size,
    )
    return np.maximum(units, 1.0) * work.resident


def _wave_bytes(t: FeatureTable) -> Array:
    """Bytes of the operands that the workgroups of one wave read, each byte counted once: `group` rows of
    tiles and as many columns as it takes, or a square."""
    work, across = _work(t), _tiles_n(t)
    at_once = np.maximum(np.minimum(_slots(t) / work.parts, work.tiles_m * across), 1.0)
    wanted = np.where(t.kernel_group > 0, t.kernel_group, np.sqrt(at_once))
    rows = np.maximum(np.minimum(np.minimum(wanted, work.tiles_m), at_once), 1.0)
    columns = np.minimum(np.ceil(at_once / rows), across)
    per_value = work.bytes_a / (t.M * t.K)
    return (rows * t.rows_of_a_tile + columns * t.columns_of_a_tile) * t.K * per_value


def _waves(t: FeatureTable) -> Array:
    work = _work(t)
    tiles = work.tiles_m * _tiles_n(t)
    return tiles / np.maximum(np.minimum(_slots(t) / work.parts, tiles), 1.0)


def _tail(tiles: Array, slots: Array) -> Array:
    return tiles / slots / np.ceil(tiles / slots)


_WAVES = (
    Feature("cluster_m", _from_library(library_cluster, 0), "rows of workgroups of a cluster"),
    Feature("cluster_n", _from_library(library_cluster, 1), "columns of workgroups of a cluster"),
    Feature("library_depth", _from_library(library_stages, 0), "depth of a library's step, 0 if unknown"),
    Feature("library_buffers", _from_library(library_stages, 1), "a library's buffers, 0 if unknown"),
    Feature(
        "cluster_fill",
        lambda t: _work(t).tiles_m * _tiles_n(t) * _work(t).parts / _clustered(t),
        "share of the clusters' workgroups that have a tile",
    ),
    Feature(
        "cluster_tail",
        lambda t: _tail(_clustered(t), _slots(t) / _work(t).resident),
        "utilization of the rounds, with one workgroup a compute unit",
    ),
    Feature(
        "resident_tail",
        lambda t: _tail(_clustered(t), _slots(t)),
        "utilization of the rounds, with all that a compute unit runs at once",
    ),
    Feature(
        "resident_rounds", lambda t: _ln(np.ceil(_clustered(t) / _slots(t))), "ln(rounds) of these workgroups"
    ),
    Feature(
        "l2_traffic",
        lambda t: _ln(_waves(t) * _wave_bytes(t) / (_work(t).bytes_a + _work(t).bytes_b)),
        "ln(bytes that the waves of workgroups read / bytes of both operands)",
    ),
    Feature(
        "l2_share",
        lambda t: _ln(_wave_bytes(t) / np.maximum(_work(t).cache_bytes, 1.0)),
        "ln(bytes that one wave reads / bytes of the cache)",
    ),
)

GEMM_POOL_2 = GEMM_POOL.extended("gemm_pool_2", (*_TIMES, *_WORK, *_WAVES))
"""For every layout, data type and source; a model of one data type and GPU reads it like the first one."""

_SUMS = ("log2_tiles", "log2_cu_loads", "log2_steps", "log2_compute", "log2_cu_traffic")
"""Logarithms that are sums of others and of kernels' own columns: a network adds these itself."""
_OF_ONE = (
    *("least", "resident", "buffers", "aligned_m", "aligned_n", "aligned_k", "cluster_m", "cluster_n"),
    *("library_depth", "library_buffers"),
)
"""Columns of the problem or of the kernel alone, which cost nothing for each pair."""

GEMM_LEAN = FeatureSchema(
    "gemm_lean_1",
    "gemm_universal",
    tuple(
        one
        for one in GEMM_POOL_2.features
        if one.name in _OF_ONE or (one in GEMM_POOL.features and one.name not in _SUMS and one not in BINARY)
    ),
    GEMM_POOL_2.intermediates,
    GEMM_POOL_2.words,
    optional=GEMM_POOL_2.optional,
    from_names=True,
)
"""Of the same pools, for networks that pick in microseconds."""
