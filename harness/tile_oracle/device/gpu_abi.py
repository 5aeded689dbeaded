"""How a compiled GPU kernel is called: kernels/gpu/abi.h, in Python."""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass

from tile_oracle.device.runtime.driver import Geometry
from tile_oracle.problem import DIRECTIONS, GEMM_LAYOUTS, GemmProblem, GroupedConvProblem, Problem

ABI_VERSION = 1
KERNEL, FINISH, LAUNCH_INFO = "to_conv", "to_finish", "to_launch_info"

_TWO_STAGE, _SPLIT_IMAGE, _PERSISTENT = 1, 2, 4
_INFO = struct.Struct("<9i")
_MOST_ROWS = 2**31 - 2**16
_MOST_POSITIONS = 2**30
"""From here on kernels cannot tell a position outside of the image from what they write for "nowhere"."""
_MOST_TILES = 2**30
"""Of a GEMM: a kernel adds the number of its workgroups to that of a tile."""
_MOST_BLOCKS = 65535
_MOST_SPLITS = 64
_FINISH_THREADS = 256
_PERSISTENT_THREADS = 512
"""Of a persistent kernel a compute unit is given workgroups of so many threads together."""

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


class GpuGemmArgs(ctypes.Structure):
    """to_gpu_gemm_args."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "c", "reserved")),
        *((name, ctypes.c_int) for name in ("M", "N", "K", "reserved_too")),
    )


def gpu_args(
    problem: Problem, in0: int, in1: int, out: int, workspace: int, split_k: int
) -> GpuArgs | GpuGemmArgs:
    """The structure for a problem and the addresses of its data."""
    if isinstance(problem, GemmProblem):
        return GpuGemmArgs(in0, in1, out, None, *problem.gemm_shape, 0)
    args = GpuArgs(in0, in1, out, workspace or None)
    for name in EXTENTS:
        setattr(args, name, getattr(problem, name))
    args.split_k = split_k
    return args


class Unlaunchable(Exception):
    """The kernel cannot be launched for this problem; the message says why."""


_COMPUTED = (*DIRECTIONS, *GEMM_LAYOUTS)
"""What the number `direction` of to_launch_info means."""


@dataclass(frozen=True)
class LaunchInfo:
    """to_launch_info: what a kernel says of itself. direction: of a GEMM its layout."""

    threads: int
    lds_bytes: int
    two_stage: bool
    split_image: bool
    direction: str
    tile: tuple[int, int, int]
    groups_to_merge: int
    persistent: bool = False


def read_launch_info(data: bytes) -> LaunchInfo:
    """Raises ValueError for another ABI's structure, or numbers that no kernel has."""
    if len(data) < _INFO.size:
        raise ValueError(f"{LAUNCH_INFO} is {len(data)} bytes long, not {_INFO.size}")
    version, threads, lds_bytes, flags, direction, *tile, merge = _INFO.unpack_from(data)
    if version != ABI_VERSION:
        raise ValueError(f"it speaks GPU ABI {version}, this harness {ABI_VERSION}")
    if not (
        1 <= threads <= 1024 and lds_bytes >= 0 and 0 <= direction < len(_COMPUTED) and min(*tile, merge) >= 1
    ):
        raise ValueError(f"{LAUNCH_INFO} holds numbers that no kernel has")
    return LaunchInfo(
        threads,
        lds_bytes,
        bool(flags & _TWO_STAGE),
        bool(flags & _SPLIT_IMAGE),
        _COMPUTED[direction],
        (tile[0], tile[1], tile[2]),
        merge,
        bool(flags & _PERSISTENT),
    )


@dataclass(frozen=True)
class LaunchPlan:
    """finish: the launch of to_finish, for kernels of two stages."""

    conv: Geometry
    finish: Geometry | None
    split_k: int
    workspace_bytes: int


def plan_launch(problem: Problem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    """Grid, splits and workspace, by the formulas of kernels/gpu/abi.h. Raises Unlaunchable."""
    wanted = problem.layout if isinstance(problem, GemmProblem) else problem.direction
    if info.direction != wanted:
        raise Unlaunchable(f"the kernel is for {info.direction}")
    if isinstance(problem, GemmProblem):
        return _plan_gemm(problem, info, compute_units)
    return _plan_convolution(problem, info, compute_units)


def _plan_gemm(p: GemmProblem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    if p.split_k != 1:
        raise Unlaunchable(f"GPU kernels do not split the depth: split_k = {p.split_k} must be 1")
    if max(p.gemm_shape) >= _MOST_ROWS:
        raise Unlaunchable("M, N and K must stay below 2^31 - 2^16")
    if p.dtype == "fp8" and p.K % 2:
        raise Unlaunchable(f"elements of fp8 travel in pairs: K = {p.K} must be even")
    tiles = _ceil(p.M, info.tile[0]) * _ceil(p.N, info.tile[1])
    if tiles >= _MOST_TILES:
        raise Unlaunchable(f"it would need {tiles:,} workgroups")
    at_once = max(1, compute_units * max(1, _PERSISTENT_THREADS // info.threads))
    grid = (min(tiles, at_once) if info.persistent else tiles, 1, 1)
    return LaunchPlan(Geometry(grid, (info.threads, 1, 1), info.lds_bytes), None, 1, 0)


def _plan_convolution(p: GroupedConvProblem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    merge = info.groups_to_merge
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
    axes = ((p.Di, p.Do, p.pad_d), (p.Hi, p.Ho, p.pad_h), (p.Wi, p.Wo, p.pad_w))
    if max(max(i, o) + 2 * pad for i, o, pad in axes) >= _MOST_POSITIONS:
        raise Unlaunchable("an image's extent with its padding must stay below 2^30 along each axis")


def _ceil(value: int, step: int) -> int:
    return -(-value // step)
