"""How a compiled GPU kernel is called: kernels/gpu/abi.h, in Python."""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass

from harness.problem import DIRECTIONS, GroupedConvProblem
from harness.target.runtime.driver import Geometry

ABI_VERSION = 1
KERNEL, FINISH, LAUNCH_INFO = "to_conv", "to_finish", "to_launch_info"

_TWO_STAGE, _SPLIT_IMAGE = 1, 2
_INFO = struct.Struct("<9i")
_MOST_ROWS = 2**31 - 2**16
_MOST_BLOCKS = 65535
_MOST_SPLITS = 64
_FINISH_THREADS = 256

EXTENTS = (
    *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "Do", "Ho", "Wo"),
    *("stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w"),
    *("dilation_d", "dilation_h", "dilation_w"),
)


class GpuArgs(ctypes.Structure):
    """to_gpu_args."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("in0", "in1", "out", "workspace")),
        *((name, ctypes.c_int) for name in EXTENTS),
        ("split_k", ctypes.c_int),
        ("reserved", ctypes.c_int),
    )


def gpu_args(
    problem: GroupedConvProblem, in0: int, in1: int, out: int, workspace: int, split_k: int
) -> GpuArgs:
    """The structure for a problem and the addresses of its data."""
    args = GpuArgs(in0, in1, out, workspace or None)
    for name in EXTENTS:
        setattr(args, name, getattr(problem, name))
    args.split_k = split_k
    return args


class Unlaunchable(Exception):
    """The kernel cannot be launched for this problem; the message says why."""


@dataclass(frozen=True)
class LaunchInfo:
    """to_launch_info: what a kernel says of itself."""

    threads: int
    lds_bytes: int
    two_stage: bool
    split_image: bool
    direction: str
    tile: tuple[int, int, int]
    groups_to_merge: int


def read_launch_info(data: bytes) -> LaunchInfo:
    """Raises ValueError for another ABI's structure, or numbers that no kernel has."""
    if len(data) < _INFO.size:
        raise ValueError(f"{LAUNCH_INFO} is {len(data)} bytes long, not {_INFO.size}")
    version, threads, lds_bytes, flags, direction, *tile, merge = _INFO.unpack_from(data)
    if version != ABI_VERSION:
        raise ValueError(f"it speaks GPU ABI {version}, this harness {ABI_VERSION}")
    if not (1 <= threads <= 1024 and lds_bytes >= 0 and 0 <= direction < 3 and min(*tile, merge) >= 1):
        raise ValueError(f"{LAUNCH_INFO} holds numbers that no kernel has")
    return LaunchInfo(
        threads,
        lds_bytes,
        bool(flags & _TWO_STAGE),
        bool(flags & _SPLIT_IMAGE),
        DIRECTIONS[direction],
        (tile[0], tile[1], tile[2]),
        merge,
    )


@dataclass(frozen=True)
class LaunchPlan:
    """finish: the launch of to_finish, for kernels of two stages."""

    conv: Geometry
    finish: Geometry | None
    split_k: int
    workspace_bytes: int


def plan_launch(problem: GroupedConvProblem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    """Grid, splits and workspace, by the formulas of kernels/gpu/abi.h. Raises Unlaunchable."""
    p, merge = problem, info.groups_to_merge
    if info.direction != p.direction:
        raise Unlaunchable(f"the kernel is for {info.direction}")
    if p.G % merge:
        raise Unlaunchable(f"it merges {merge} groups a tile, and G = {p.G}")
    _check_extents(p)
    tile_m, tile_n, tile_k = info.tile
    rows, columns, z = _gemm(p, merge)
    if info.split_image:
        x = p.N * _ceil(rows // p.N, tile_m) * _ceil(columns, tile_n)
    else:
        x = _ceil(rows, tile_m) * _ceil(columns, tile_n)
    y = p.G // merge
    if x >= 2**31 or y > _MOST_BLOCKS or z > _MOST_BLOCKS:
        raise Unlaunchable(f"it would need a grid of {x:,} x {y:,} x {z:,} workgroups")
    block = (info.threads, 1, 1)
    if not info.two_stage:
        return LaunchPlan(Geometry((x, y, z), block, info.lds_bytes), None, 1, 0)
    most = min(_MOST_SPLITS, _ceil(p.N * p.Do * p.Ho * p.Wo, tile_k))
    split = max(1, min(most, _ceil(2 * compute_units, x * y)))
    values = math.prod(p.weight_shape)
    finish = Geometry((min(_ceil(values, _FINISH_THREADS), _MOST_BLOCKS), 1, 1), (_FINISH_THREADS, 1, 1))
    return LaunchPlan(Geometry((x, y, split), block, info.lds_bytes), finish, split, 4 * split * values)


def _gemm(p: GroupedConvProblem, merge: int) -> tuple[int, int, int]:
    """(rows, columns, z) of the grid."""
    c, k = merge * (p.C // p.G), merge * (p.K // p.G)
    if p.direction == "forward":
        return p.N * p.Do * p.Ho * p.Wo, k, 1
    if p.direction == "bwd_weight":
        return k, c * p.Z * p.Y * p.X, 1
    rows = p.N * _ceil(p.Di, p.stride_d) * _ceil(p.Hi, p.stride_h) * _ceil(p.Wi, p.stride_w)
    return rows, c, p.stride_d * p.stride_h * p.stride_w


def _check_extents(p: GroupedConvProblem) -> None:
    m, n, k = p.gemm_shape
    images = p.Di * p.Hi * p.Wi * p.C, p.Do * p.Ho * p.Wo * p.K
    if max(m, n * p.G, k, *images) >= _MOST_ROWS:
        raise Unlaunchable("rows, columns and depth of the GEMM and one image must stay below 2^31 - 2^16")


def _ceil(value: int, step: int) -> int:
    return -(-value // step)
