"""Launches of GEMM kernels on GPUs (see `tile_oracle.operation.on_device`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int, c_longlong, c_void_p

from tile_oracle.device.gpu_abi import (
    MOST_ROWS,
    WORK_DTYPES,
    GpuGemmArgs,
    LaunchInfo,
    LaunchPlan,
    Unlaunchable,
    ceil_div,
)
from tile_oracle.device.gpu_operands import gpu_data, gpu_memory_bytes, host_data
from tile_oracle.device.runtime.driver import Geometry
from tile_oracle.operations.gemm.problem import GemmProblem

__all__ = [
    "by_definition",
    "ck_tile_members",
    "gpu_args",
    "gpu_data",
    "gpu_memory_bytes",
    "host_data",
    "plan_launch",
]

_MOST_TILES = 2**30
"""A persistent kernel adds its number of workgroups to a tile's number, which must not overflow."""
_PERSISTENT_THREADS = 512
"""Threads per compute unit for which workgroups of a persistent kernel are launched."""
_CK_TILE_OP = 1
"""The operation's number in kernels/ck_tile/abi.h."""


class _Product(ctypes.Structure):
    """device_work.hpp: to_work::Product."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "c")),
        *((name, c_longlong) for name in ("a_row", "a_depth", "b_depth", "b_column")),
        *((name, c_int) for name in ("M", "N", "K", "dtype", "result_dtype")),
    )


def gpu_args(problem: GemmProblem, in0: int, in1: int, out: int, workspace: int, split_k: int) -> GpuGemmArgs:
    """Returns the argument structure for a problem and the addresses of its data."""
    return GpuGemmArgs(in0, in1, out, None, *problem.gemm_shape, 0)


def plan_launch(p: GemmProblem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    """Grid, splits and workspace, by the formulas of kernels/gpu/abi.h. Raises Unlaunchable."""
    if p.split_k != 1:
        raise Unlaunchable(f"GPU kernels do not split the depth: split_k = {p.split_k} must be 1")
    if max(p.gemm_shape) >= MOST_ROWS:
        raise Unlaunchable("M, N and K must stay below 2^31 - 2^16")
    if p.dtype == "fp8" and p.K % 2:
        raise Unlaunchable(f"fp8 elements are loaded in pairs: K = {p.K} must be even")
    tiles = ceil_div(p.M, info.tile[0]) * ceil_div(p.N, info.tile[1])
    if tiles >= _MOST_TILES:
        raise Unlaunchable(f"it would need {tiles:,} workgroups")
    at_once = max(1, compute_units * max(1, _PERSISTENT_THREADS // info.threads))
    grid = (min(tiles, at_once) if info.persistent else tiles, 1, 1)
    return LaunchPlan(Geometry(grid, (info.threads, 1, 1), info.lds_bytes), None, 1, 0)


def by_definition(problem: GemmProblem, in0: int, in1: int, out: int) -> tuple[str, _Product]:
    """Returns the harness's own matrix product kernel and its argument."""
    a = (problem.K, 1) if problem.layout[0] == "r" else (1, problem.M)
    b = (problem.N, 1) if problem.layout[1] == "r" else (1, problem.K)
    types = (WORK_DTYPES.index(problem.dtype), WORK_DTYPES.index(problem.result_dtype))
    return "to_product", _Product(in0, in1, out, *a, *b, *problem.gemm_shape, *types)


def ck_tile_members(problem: GemmProblem) -> Mapping[str, int]:
    """Returns the problem's members of CK Tile's argument structure."""
    return {"gemm_m": problem.M, "gemm_n": problem.N, "gemm_k": problem.K, "op": _CK_TILE_OP}
