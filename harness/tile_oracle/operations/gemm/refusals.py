"""Why an architecture refuses a GEMM kernel; see `Arch.refusals`.

Every reason begins with the name of its rule: `warp tile: ...`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tile_oracle.arch import Arch, Triple, listed
from tile_oracle.kernel.fields import TiledKernel, triple
from tile_oracle.operations.gemm.kernel import GemmKernel
from tile_oracle.operations.gemm.problem import GemmProblem

PRESHUFFLE_LAYOUT = "rcr"
"""B is shuffled column by column, so its columns must be contiguous, and so must A's rows."""

_CPU = "cpu"


def refusals(arch: Arch, kernel: GemmKernel) -> Iterator[str]:
    """Yields all reasons against the kernel, in the order in which they are checked."""
    if kernel.dtype not in arch.warp_tiles:
        known = ", ".join(arch.dtypes(kernel.op))
        yield f"dtype: {arch.name} has kernels for {known}, not for {kernel.dtype}"
        return
    yield from _pipeline_refusals(arch, kernel)
    yield from _tile_refusals(arch, kernel)
    yield from arch.padding_refusals(kernel)
    if arch.kernels.name == _CPU:
        yield from _cpu_refusals(arch, kernel)


def _pipeline_refusals(arch: Arch, kernel: GemmKernel) -> Iterator[str]:
    yield from arch.pipeline_refusals(kernel)
    if kernel.pipeline not in arch.kernels.pipelines:
        return
    if kernel.preshuffle and kernel.layout != PRESHUFFLE_LAYOUT:
        yield (
            f"layout: {kernel.pipeline} shuffles B column by column, which {PRESHUFFLE_LAYOUT} matrices "
            f"allow, not {kernel.layout}"
        )


def _tile_refusals(arch: Arch, kernel: GemmKernel) -> Iterator[str]:
    if kernel.waves not in arch.waves:
        yield f"waves: {triple(kernel.waves)} is not one of {listed(arch.waves)} on {arch.name}"
    there, whose = arch.warp_tiles[kernel.dtype], "for"
    if kernel.preshuffle:
        there, whose = arch.preshuffle_warp_tiles.get(kernel.dtype, ()), "for preshuffled"
    if kernel.warp_tile not in there:
        yield (
            f"warp tile: {triple(kernel.warp_tile)} is not one of {listed(there) or 'none'} "
            f"{whose} {kernel.dtype} on {arch.name}"
        )
    yield from arch.tile_refusals(kernel)
    if arch.kernels.whole_loads:
        threads = arch.workgroup_threads(kernel)
        for axis, rows in (("m", kernel.tile_m), ("n", kernel.tile_n)):
            if rows * kernel.tile_k % threads:
                yield (
                    f"vectors: tile_{axis} x tile_k = {rows * kernel.tile_k:,} elements are not a multiple "
                    f"of {threads} threads"
                )


def _cpu_refusals(arch: Arch, kernel: GemmKernel) -> Iterator[str]:
    if kernel.persistent:
        yield f"persistent: {arch.name} has one thread, which takes every tile anyway: leave it off"


def problem_refusals(arch: Arch, kernel: GemmKernel, problem: GemmProblem) -> Iterator[str]:
    """Yields why a kernel that the architecture allows cannot compute this problem of its kind."""
    yield from padding_refusals(kernel, problem.gemm_shape, problem.split_k)
    if problem.split_k > 1 and arch.kernels.name == _CPU:
        yield f"split_k: {arch.name} kernels do not split the depth: split_k = {problem.split_k} must be 1"


def padding_refusals(kernel: TiledKernel, shape: Triple, parts: int = 1) -> Iterator[str]:
    """Yields the axes of a product with partial tiles that the kernel does not handle. parts: those of the
    depth, each of which has tiles of its own."""
    for axis, tile, padded, extent in zip("mnk", kernel.tile, kernel.paddings, shape, strict=True):
        split = parts if axis == "k" else 1
        if not padded and extent % (tile * split):
            more = f" x split_k {split}" if split > 1 else ""
            yield (
                f"padding: pad_{axis} is off and {axis.upper()} = {extent} is not a multiple of "
                f"tile_{axis} = {tile}{more}"
            )
