"""The kernels that an architecture allows for a kind of problem, as combinations of choices.

Tiles are multiples of waves and warp tiles; pipelines, schedulers and flags are all that there are. One
table an operation says the axes, and how a combination becomes a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import KernelError, ModelError
from tile_oracle.kernel import SCHEDULERS, Kernel
from tile_oracle.operation.gemm.kernel import GemmKernel
from tile_oracle.operation.gemm.problem import GemmProblem
from tile_oracle.operation.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operation.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem

Axes = tuple[tuple[Any, ...], ...]

_MULTIPLES = (1, 2, 4, 8)
_DEPTHS = (1, 2, 4, 8)
_DEPTHS_OF_SINGLE_STEPS = (16, 32, 64, 128, 256, 512)
_FLAG = (False, True)


@dataclass(frozen=True)
class Space:
    """Every combination of choices; `kernel` says which kernel a combination is, None where it is none.

    A combination is one index per axis, (axes,).
    """

    arch: Arch
    problem: Problem
    axes: Axes

    @classmethod
    def of(cls, arch_name: str, problem: Problem) -> Space:
        """The space of an architecture for the kind of a problem. Raises ModelError when it is empty."""
        arch = load_arch(arch_name)
        axes = _TABLES[problem.op].axes(arch, problem.dtype)
        if any(not axis for axis in axes):
            raise ModelError(f"{arch_name} has no kernels for {problem.dtype}: there is nothing to search")
        return cls(arch, problem, axes)

    def kernel(self, choice: Sequence[int]) -> Kernel | None:
        """The kernel of a combination, or None when the architecture refuses it."""
        values = tuple(axis[index] for axis, index in zip(self.axes, choice, strict=True))
        try:
            kernel = _TABLES[self.problem.op].kernel(self.arch, self.problem, values)
        except KernelError:
            return None
        return kernel if self.why_not(kernel) is None else None

    def why_not(self, kernel: Kernel) -> str | None:
        """Why the kernel cannot be built for the problem, None when it can."""
        return self.arch.refusal(kernel) or self.arch.problem_refusal(kernel, self.problem)


@dataclass(frozen=True)
class _Table:
    """An operation's axes for a data type, and the kernel of one value an axis (KernelError: none)."""

    axes: Callable[[Arch, str], Axes]
    kernel: Callable[[Arch, Any, tuple[Any, ...]], Kernel]


def _tile(waves: Sequence[int], warp_tile: Sequence[int], multiples: Sequence[int]) -> tuple[int, int, int]:
    m, n, k = (wave * warp * more for wave, warp, more in zip(waves, warp_tile, multiples, strict=True))
    return m, n, k


def _sizes(**triples: Sequence[int]) -> dict[str, Any]:
    """tile=(16, 64, 64) as the fields tile_m, tile_n, tile_k."""
    return {
        f"{name}_{axis}": size
        for name, triple in triples.items()
        for axis, size in zip("mnk", triple, strict=True)
    }


def _depths(arch: Arch, dtype: str) -> tuple[int, ...]:
    """How many instruction tiles deep a tile may be; more where an instruction is one element deep (cpu)."""
    single = all(warp_tile[2] == 1 for warp_tile in arch.warp_tiles.get(dtype, ()))
    return _DEPTHS_OF_SINGLE_STEPS if single else _DEPTHS


def _conv_axes(arch: Arch, dtype: str) -> Axes:
    return (
        tuple(arch.waves),
        tuple(arch.warp_tiles.get(dtype, ())),
        *(_MULTIPLES, _MULTIPLES, _depths(arch, dtype)),
        arch.pipelines(GroupedConvKernel.op),
        SCHEDULERS,
        *(_FLAG, _FLAG),
    )


def _conv_kernel(arch: Arch, problem: GroupedConvProblem, values: tuple[Any, ...]) -> Kernel:
    waves, warp_tile, more_m, more_n, more_k, pipeline, scheduler, two_buffers, split = values
    tile = _tile(waves, warp_tile, (more_m, more_n, more_k))
    widths = arch.widest_vectors(problem.dtype, tile, waves)
    vectors: dict[str, Any] = {
        f"vector_{operand}": width for operand, width in zip("abc", widths, strict=True)
    }
    return GroupedConvKernel(
        direction=problem.direction,
        dtype=problem.dtype,
        ndim=problem.ndim,
        **_sizes(tile=tile, wave=waves, warp_tile=warp_tile),
        **vectors,
        pipeline=pipeline,
        scheduler=scheduler,
        double_smem_buffer=two_buffers,
        split_image=split,
    )


def _gemm_axes(arch: Arch, dtype: str) -> Axes:
    shuffled = arch.preshuffle_warp_tiles.get(dtype, ())
    return (
        tuple(arch.waves),
        tuple(dict.fromkeys((*arch.warp_tiles.get(dtype, ()), *shuffled))),
        *(_MULTIPLES, _MULTIPLES, _depths(arch, dtype)),
        arch.pipelines(GemmKernel.op),
        SCHEDULERS,
        arch.kernels.epilogues,
        *(_FLAG if arch.kernels.paddings_may_be_off else (True,) for _ in "mnk"),
        _FLAG,
    )


def _gemm_kernel(arch: Arch, problem: GemmProblem, values: tuple[Any, ...]) -> Kernel:
    waves, warp_tile, more_m, more_n, more_k, pipeline, scheduler, epilogue, *flags = values
    pad_m, pad_n, pad_k, persistent = flags
    tile = _tile(waves, warp_tile, (more_m, more_n, more_k))
    return GemmKernel(
        dtype=problem.dtype,
        layout=problem.layout,
        **_sizes(tile=tile, warp=waves, warp_tile=warp_tile),
        pipeline=pipeline,
        scheduler=scheduler,
        epilogue=epilogue,
        pad_m=pad_m,
        pad_n=pad_n,
        pad_k=pad_k,
        persistent=persistent,
    )


_TABLES: Mapping[str, _Table] = {
    GroupedConvProblem.op: _Table(_conv_axes, _conv_kernel),
    GemmProblem.op: _Table(_gemm_axes, _gemm_kernel),
}
