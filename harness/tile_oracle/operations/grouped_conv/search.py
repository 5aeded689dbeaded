"""Convolution kernels as combinations of choices (see `tile_oracle.operation.search_axes`)."""

from __future__ import annotations

from typing import Any

from tile_oracle.arch import Arch
from tile_oracle.kernel import SCHEDULERS
from tile_oracle.operation.search_axes import FLAG, MULTIPLES, Axes, depths, sizes, tile_of
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem


def axes(arch: Arch, dtype: str) -> Axes:
    """Returns the axes for a data type."""
    return (
        tuple(arch.waves),
        tuple(arch.warp_tiles.get(dtype, ())),
        *(MULTIPLES, MULTIPLES, depths(arch, dtype)),
        arch.pipelines(GroupedConvKernel.op),
        SCHEDULERS,
        *(FLAG, FLAG),
    )


def kernel(arch: Arch, problem: GroupedConvProblem, values: tuple[Any, ...]) -> GroupedConvKernel:
    """Returns the kernel for one value per axis. Raises KernelError when there is none."""
    waves, warp_tile, more_m, more_n, more_k, pipeline, scheduler, two_buffers, split = values
    tile = tile_of(waves, warp_tile, (more_m, more_n, more_k))
    widths = arch.widest_vectors(problem.dtype, tile, waves)
    vectors: dict[str, Any] = {
        f"vector_{operand}": width for operand, width in zip("abc", widths, strict=True)
    }
    return GroupedConvKernel(
        direction=problem.direction,
        dtype=problem.dtype,
        ndim=problem.ndim,
        **sizes(tile=tile, wave=waves, warp_tile=warp_tile),
        **vectors,
        pipeline=pipeline,
        scheduler=scheduler,
        double_smem_buffer=two_buffers,
        split_image=split,
    )
