"""GEMM kernels as combinations of choices (see `tile_oracle.operation.search_axes`)."""

from __future__ import annotations

from typing import Any

from tile_oracle.arch import Arch
from tile_oracle.kernel import SCHEDULERS
from tile_oracle.operation.search_axes import FLAG, MULTIPLES, Axes, depths, sizes, tile_of
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GemmProblem


def axes(arch: Arch, dtype: str) -> Axes:
    """Returns the axes for a data type."""
    shuffled = arch.preshuffle_warp_tiles.get(dtype, ())
    return (
        tuple(arch.waves),
        tuple(dict.fromkeys((*arch.warp_tiles.get(dtype, ()), *shuffled))),
        *(MULTIPLES, MULTIPLES, depths(arch, dtype)),
        arch.pipelines(GemmKernel.op),
        SCHEDULERS,
        arch.kernels.epilogues,
        *(FLAG if arch.kernels.paddings_may_be_off else (True,) for _ in "mnk"),
        FLAG,
    )


def kernel(arch: Arch, problem: GemmProblem, values: tuple[Any, ...]) -> GemmKernel:
    """Returns the kernel for one value per axis. Raises KernelError when there is none."""
    waves, warp_tile, more_m, more_n, more_k, pipeline, scheduler, epilogue, *flags = values
    pad_m, pad_n, pad_k, persistent = flags
    tile = tile_of(waves, warp_tile, (more_m, more_n, more_k))
    return GemmKernel(
        dtype=problem.dtype,
        layout=problem.layout,
        **sizes(tile=tile, warp=waves, warp_tile=warp_tile),
        pipeline=pipeline,
        scheduler=scheduler,
        epilogue=epilogue,
        pad_m=pad_m,
        pad_n=pad_n,
        pad_k=pad_k,
        persistent=persistent,
    )
