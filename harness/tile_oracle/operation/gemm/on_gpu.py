"""Launches of GEMM kernels on GPUs (see `tile_oracle.operation.on_gpu`)."""

from __future__ import annotations

from tile_oracle.device.gpu_abi import MOST_ROWS, GpuGemmArgs, LaunchInfo, LaunchPlan, Unlaunchable, ceil_div
from tile_oracle.device.runtime.driver import Geometry
from tile_oracle.problem.gemm import GemmProblem

_MOST_TILES = 2**30
"""A kernel adds the number of its workgroups to that of a tile."""
_PERSISTENT_THREADS = 512
"""Of a persistent kernel a compute unit is given workgroups of so many threads together."""


def gpu_args(problem: GemmProblem, in0: int, in1: int, out: int, workspace: int, split_k: int) -> GpuGemmArgs:
    """The structure for a problem and the addresses of its data."""
    return GpuGemmArgs(in0, in1, out, None, *problem.gemm_shape, 0)


def plan_launch(p: GemmProblem, info: LaunchInfo, compute_units: int) -> LaunchPlan:
    """Grid, splits and workspace, by the formulas of kernels/gpu/abi.h. Raises Unlaunchable."""
    if p.split_k != 1:
        raise Unlaunchable(f"GPU kernels do not split the depth: split_k = {p.split_k} must be 1")
    if max(p.gemm_shape) >= MOST_ROWS:
        raise Unlaunchable("M, N and K must stay below 2^31 - 2^16")
    if p.dtype == "fp8" and p.K % 2:
        raise Unlaunchable(f"elements of fp8 travel in pairs: K = {p.K} must be even")
    tiles = ceil_div(p.M, info.tile[0]) * ceil_div(p.N, info.tile[1])
    if tiles >= _MOST_TILES:
        raise Unlaunchable(f"it would need {tiles:,} workgroups")
    at_once = max(1, compute_units * max(1, _PERSISTENT_THREADS // info.threads))
    grid = (min(tiles, at_once) if info.persistent else tiles, 1, 1)
    return LaunchPlan(Geometry(grid, (info.threads, 1, 1), info.lds_bytes), None, 1, 0)
