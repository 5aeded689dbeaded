"""The kernels that an architecture allows for a kind of problem, as combinations of choices.

Tiles are multiples of waves and warp tiles; all pipelines, schedulers and flags are included. The operation
defines the axes and the conversion of a combination to a kernel (`tile_oracle.operation.search_axes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_oracle.arch import Arch, load_arch
from tile_oracle.errors import KernelError, ModelError
from tile_oracle.kernel import Kernel
from tile_oracle.operation import operation_named
from tile_oracle.operation.search_axes import Axes, SearchAxes
from tile_oracle.problem import Problem


@dataclass(frozen=True)
class Space:
    """All combinations of choices. A combination is one index per axis, (axes,)."""

    arch: Arch
    problem: Problem
    axes: Axes

    @classmethod
    def of(cls, arch_name: str, problem: Problem) -> Space:
        """The space of an architecture for a problem's kind. Raises ModelError if it is empty."""
        arch = load_arch(arch_name)
        axes = _axes_of(problem.op).axes(arch, problem.dtype)
        if any(not axis for axis in axes):
            raise ModelError(f"{arch_name} has no kernels for {problem.dtype}: there is nothing to search")
        return cls(arch, problem, axes)

    def kernel(self, choice: Sequence[int]) -> Kernel | None:
        """The kernel of a combination, None if the architecture does not allow it."""
        values = tuple(axis[index] for axis, index in zip(self.axes, choice, strict=True))
        try:
            kernel = _axes_of(self.problem.op).kernel(self.arch, self.problem, values)
        except KernelError:
            return None
        return kernel if self.why_not(kernel) is None else None

    def why_not(self, kernel: Kernel) -> str | None:
        """The reason why the kernel cannot be built for the problem, None if it can."""
        return self.arch.refusal(kernel) or self.arch.problem_refusal(kernel, self.problem)


def _axes_of(op: str) -> SearchAxes:
    search = operation_named(op).search
    if search is None:
        raise ModelError(f"kernels of {op} cannot be searched: its descriptor needs search")
    return search()
