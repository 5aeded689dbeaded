"""Calls compiled GPU kernels: kernels/gpu/abi.h in Python."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

from tile_oracle.device.runtime.driver import Geometry
from tile_oracle.operation.on_device import native_on_gpu
from tile_oracle.problem import Problem

ABI_VERSION = 1
KERNEL, FINISH, LAUNCH_INFO = "to_conv", "to_finish", "to_launch_info"

_TWO_STAGE, _SPLIT_IMAGE, _PERSISTENT = 1, 2, 4
_INFO = struct.Struct("<9i")
MOST_ROWS = 2**31 - 2**16

EXTENTS = (
    *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "Do", "Ho", "Wo"),
    *("stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w"),
    *("dilation_d", "dilation_h", "dilation_w"),
)

WORK_DTYPES = ("bf16", "fp16", "fp32", "fp8")
"""In the numbering of kernels/gpu/device_work.hpp."""


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
    """Returns the argument structure for a problem and the addresses of its data."""
    return native_on_gpu(problem.op).gpu_args(problem, in0, in1, out, workspace, split_k)


class Unlaunchable(Exception):
    """The kernel cannot be launched for this problem; the message says why."""


_COMPUTED = ("forward", "bwd_data", "bwd_weight", "rcr", "rrr", "crr", "ccr")
"""Meaning of the number `direction` in to_launch_info: convolution directions, then GEMM layouts."""


@dataclass(frozen=True)
class LaunchInfo:
    """A kernel's description of itself, to_launch_info. direction: for a GEMM, its layout."""

    threads: int
    lds_bytes: int
    two_stage: bool
    split_image: bool
    direction: str
    tile: tuple[int, int, int]
    groups_to_merge: int
    persistent: bool = False


def read_launch_info(data: bytes) -> LaunchInfo:
    """Reads to_launch_info. Raises ValueError for the structure of another ABI or impossible numbers."""
    if len(data) < _INFO.size:
        raise ValueError(f"{LAUNCH_INFO} is {len(data)} bytes long, not {_INFO.size}")
    version, threads, lds_bytes, flags, direction, *tile, merge = _INFO.unpack_from(data)
    if version != ABI_VERSION:
        raise ValueError(f"its GPU ABI is {version}, tile-oracle's {ABI_VERSION}")
    known = 1 <= threads <= 1024 and lds_bytes >= 0 and 0 <= direction < len(_COMPUTED)
    if not known or min(*tile, merge) < 1:
        raise ValueError(f"{LAUNCH_INFO} holds numbers that no kernel has")
    two_stage, split_image, persistent = (
        bool(flags & one) for one in (_TWO_STAGE, _SPLIT_IMAGE, _PERSISTENT)
    )
    m, n, k = tile
    of_launch = (threads, lds_bytes, two_stage, split_image, _COMPUTED[direction])
    return LaunchInfo(*of_launch, (m, n, k), merge, persistent)


@dataclass(frozen=True)
class LaunchPlan:
    """conv: the launch of to_conv. finish: the launch of to_finish, for two-stage kernels."""

    conv: Geometry
    finish: Geometry | None
    split_k: int
    workspace_bytes: int


def plan_launch(problem: Problem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    """Grid, splits and workspace, by the formulas of kernels/gpu/abi.h. Raises Unlaunchable."""
    if info.direction not in problem.kind.words.values():
        raise Unlaunchable(f"the kernel is for {info.direction}")
    return native_on_gpu(problem.op).plan_launch(problem, info, compute_units)


def ceil_div(value: int, step: int) -> int:
    """value / step, rounded up."""
    return -(-value // step)
