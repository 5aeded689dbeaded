"""The kernel sources of a target: what each refuses, and what makes its binaries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from functools import cached_property

from tile_oracle.arch import load_arch
from tile_oracle.compiling.binary import BuildResult
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.kernel_source import CK_TILE, KernelSource
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem


class Source(ABC):
    """Kernels of one origin in a session."""

    implementation: str
    """The value of the records' column `implementation`."""
    identity: str
    """Hash of what determines the binaries. A run can be resumed only with the same sources."""
    builder: Builder | None = None
    """What compiles the kernels; None if nothing is compiled."""

    @abstractmethod
    def declares(self, kernel: Kernel) -> bool:
        """Returns whether the kernel is this source's alone, not one of a rule set."""

    @abstractmethod
    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Returns why this kernel cannot run this problem, or None."""

    @abstractmethod
    def build(self, kernel: Kernel) -> Future[BuildResult]:
        """Returns the kernel's binary, compiled in the background or taken from the cache."""

    def close(self) -> None:
        """Stops outstanding builds."""
        return


class Compiled(Source):
    """The kernels of a `KernelSource`, which a builder compiles."""

    builder: Builder

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.kernels: KernelSource = builder.source
        self.implementation, self.identity = self.kernels.implementation, builder.source_identity
        arch = load_arch(builder.arch)
        self._limits = arch.unlisted if self.implementation == CK_TILE else arch

    @cached_property
    def declared(self) -> frozenset[Kernel]:
        """The kernels that no rule set proposes."""
        kinds = self.kernels.kinds or ()
        return frozenset(kernel for kind in kinds for kernel in self.kernels.pool(kind))

    def declares(self, kernel: Kernel) -> bool:
        return kernel in self.declared

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        missing = self.kernels.refusal(kernel, problem)
        return missing or self._limits.refusal(kernel) or self._limits.problem_refusal(kernel, problem)

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        return self.builder.submit(kernel)

    def close(self) -> None:
        self.builder.close()


def finished(result: BuildResult) -> Future[BuildResult]:
    """Returns a future that has this result already."""
    future: Future[BuildResult] = Future()
    future.set_result(result)
    return future
