"""Launches of convolution kernels on GPUs (see `tile_oracle.operation.on_device`)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from ctypes import c_int, c_void_p
from functools import lru_cache

from tile_oracle.device.gpu_abi import (
    EXTENTS,
    MOST_ROWS,
    WORK_DTYPES,
    GpuArgs,
    LaunchInfo,
    LaunchPlan,
    Unlaunchable,
    ceil_div,
)
from tile_oracle.device.gpu_operands import gpu_data, gpu_memory_bytes, host_data
from tile_oracle.device.runtime.driver import Geometry
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem

__all__ = [
    "by_definition",
    "ck_tile_members",
    "gpu_args",
    "gpu_data",
    "gpu_memory_bytes",
    "host_data",
    "plan_launch",
]

_MOST_POSITIONS = 2**30
"""From this extent on, kernels cannot distinguish positions from their marker for "outside the image"."""
_MOST_BLOCKS = 65535
_MOST_SPLITS = 64
_FINISH_THREADS = 256
_CK_TILE_OP = 0
"""The operation's number in kernels/ck_tile/abi.h."""


class _Convolution(ctypes.Structure):
    """device_work.hpp: to_work::Convolution."""

    _fields_ = (
        *((name, c_void_p) for name in ("in0", "in1", "out")),
        *((name, c_int) for name in ("direction", "dtype", *EXTENTS)),
    )


def gpu_args(
    problem: GroupedConvProblem, in0: int, in1: int, out: int, workspace: int, split_k: int
) -> GpuArgs:
    """Returns the argument structure for a problem and the addresses of its data."""
    return GpuArgs(in0, in1, out, workspace or None, *_extents(problem), split_k, 0)


@lru_cache(maxsize=8)
def _extents(problem: GroupedConvProblem) -> tuple[int, ...]:
    """Returns the problem's members of both argument structures, in their order."""
    return tuple(getattr(problem, name) for name in EXTENTS)


def plan_launch(p: GroupedConvProblem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    """Grid, splits and workspace, by the formulas of kernels/gpu/abi.h. Raises Unlaunchable."""
    merge = info.groups_to_merge
    if p.G % merge:
        raise Unlaunchable(f"it merges {merge} groups per tile, and G = {p.G}")
    _check_extents(p)
    tile_m, tile_n, tile_k = info.tile
    rows, columns, z = _gemm(p, merge)
    if info.split_image:
        x = p.N * ceil_div(rows // p.N, tile_m) * ceil_div(columns, tile_n)
    else:
        x = ceil_div(rows, tile_m) * ceil_div(columns, tile_n)
    y = p.G // merge
    if x >= 2**31 or y > _MOST_BLOCKS or z > _MOST_BLOCKS:
        raise Unlaunchable(f"it would need a grid of {x:,} x {y:,} x {z:,} workgroups")
    block = (info.threads, 1, 1)
    if not info.two_stage:
        return LaunchPlan(Geometry((x, y, z), block, info.lds_bytes), None, 1, 0)
    most = min(_MOST_SPLITS, ceil_div(p.N * p.Do * p.Ho * p.Wo, tile_k))
    split = max(1, min(most, ceil_div(2 * compute_units, x * y)))
    values = math.prod(p.weight_shape)
    finish = Geometry((min(ceil_div(values, _FINISH_THREADS), _MOST_BLOCKS), 1, 1), (_FINISH_THREADS, 1, 1))
    return LaunchPlan(Geometry((x, y, split), block, info.lds_bytes), finish, split, 4 * split * values)


def _gemm(p: GroupedConvProblem, merge: int) -> tuple[int, int, int]:
    """(rows, columns, z) of the grid."""
    c, k = merge * (p.C // p.G), merge * (p.K // p.G)
    if p.direction == "forward":
        return p.N * p.Do * p.Ho * p.Wo, k, 1
    if p.direction == "bwd_weight":
        return k, c * p.Z * p.Y * p.X, 1
    rows = p.N * ceil_div(p.Di, p.stride_d) * ceil_div(p.Hi, p.stride_h) * ceil_div(p.Wi, p.stride_w)
    return rows, c, p.stride_d * p.stride_h * p.stride_w


def _check_extents(p: GroupedConvProblem) -> None:
    m, n, k = p.gemm_shape
    images = p.Di * p.Hi * p.Wi * p.C, p.Do * p.Ho * p.Wo * p.K
    if max(m, n * p.G, k, *images) >= MOST_ROWS:
        raise Unlaunchable("rows, columns and depth of the GEMM and one image must stay below 2^31 - 2^16")
    axes = ((p.Di, p.Do, p.pad_d), (p.Hi, p.Ho, p.pad_h), (p.Wi, p.Wo, p.pad_w))
    if max(max(i, o) + 2 * pad for i, o, pad in axes) >= _MOST_POSITIONS:
        raise Unlaunchable("an image's extent with its padding must stay below 2^30 along each axis")


def by_definition(problem: GroupedConvProblem, in0: int, in1: int, out: int) -> tuple[str, _Convolution]:
    """Returns the harness's own convolution kernel and its argument."""
    kind = DIRECTIONS.index(problem.direction), WORK_DTYPES.index(problem.dtype)
    return "to_reference", _Convolution(in0, in1, out, *kind, *_extents(problem))


def ck_tile_members(problem: GroupedConvProblem) -> Mapping[str, int]:
    """Returns the problem's members of CK Tile's argument structure."""
    return {name: getattr(problem, name) for name in EXTENTS} | {"op": _CK_TILE_OP}
