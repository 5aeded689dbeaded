"""A target: a device of one architecture, and the kernel sources of a session. It touches no device."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING

from tile_oracle.arch import load_arch
from tile_oracle.compiling.binary import BuildResult
from tile_oracle.compiling.isa import AMD_ARCHS, GPU_MACHINES
from tile_oracle.compiling.kernel_source import CK_TILE, KernelSource
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.process.cores import usable_cores
from tile_oracle.targets.gpu_presence import Presence, visible_device

if TYPE_CHECKING:
    from tile_oracle.compiling.builder import Builder

_REFUSALS_KEPT = 1 << 14


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
        limits = arch.unlisted if self.implementation == CK_TILE else arch
        self._problem_refusal, self._kernel_refusal = limits.problem_refusal, cache(limits.refusal)
        # Builds and devices ask about the same pairs.
        self._refusal = lru_cache(_REFUSALS_KEPT)(self._find_refusal)

    @cached_property
    def declared(self) -> frozenset[Kernel]:
        """The kernels that no rule set proposes."""
        return frozenset(kernel for kind in self.kernels.kinds or () for kernel in self.kernels.pool(kind))

    def declares(self, kernel: Kernel) -> bool:
        return kernel in self.declared

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        return self._refusal(kernel, problem)

    def _find_refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        missing = self.kernels.refusal(kernel, problem)
        return missing or self._kernel_refusal(kernel) or self._problem_refusal(kernel, problem)

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        return self.builder.submit(kernel)

    def close(self) -> None:
        self.builder.close()


def finished(result: BuildResult) -> Future[BuildResult]:
    """Returns a future that has this result already."""
    future: Future[BuildResult] = Future()
    future.set_result(result)
    return future


REPLAY = "replay"
"""The name of the target of recorded measurements, which has no sources and no device."""

INTERPRET = "interpret"
"""The name of the target that runs kernels in Triton's interpreter, which checks and does not time."""

_BASE_TIMEOUT_S, _BASE_TIMEOUT_INTERPRETED_S = 20.0, 300.0
_SECONDS_PER_GFLOP, _SECONDS_PER_GFLOP_ON_GPU = 40.0, 0.02
"""Generous. A GEMM kernel on a depthwise problem reaches only 0.1 GFLOPS on the CPU, and runs three times;
one with 16-wide tiles stays far below 1 TFLOPS on a GPU, and runs often."""


class Target:
    """The parent's side of a target."""

    def __init__(
        self,
        name: str,
        arch: str,
        sources: Sequence[Source] = (),
        device_name: str = "",
        presence: Presence | None = None,
        identity: str = "",
    ) -> None:
        """name: for --target. arch: the architecture to build kernels for. sources: the first has the kernels
        that no other declares. device_name: `DeviceInfo.name` if it is known without opening the device.
        presence: what is known of the GPU. identity: hash of recorded measurements.

        Raises BuildError when two sources declare different kernels of one name.
        """
        self.name, self.arch, self.device_name = name, arch, device_name
        self.sources = list(sources)
        self.is_gpu = arch in GPU_MACHINES and not self.interpreted
        module = "gpu" if self.is_gpu else "cpu"
        self.device_module = f"tile_oracle.device.{'interpreter' if self.interpreted else module}"
        """The module in which the worker finds `open_device(**device_options) -> Device`."""
        self.built_elsewhere: Callable[[Kernel], BuildResult | None] = lambda kernel: None
        """Asked before a kernel is built: what another machine found out about it."""
        self._presence, self._identity = presence, identity
        self._check_owners()

    @property
    def interpreted(self) -> bool:
        """Whether the kernels run in Triton's interpreter: without times."""
        return self.name == INTERPRET

    def owner(self, kernel: Kernel) -> Source:
        """Returns the source that has the kernel."""
        first, *others = self.sources
        if not others or first.declares(kernel):
            return first
        return next((one for one in others if one.declares(kernel)), first)

    @property
    def compiled(self) -> Iterator[Compiled]:
        """The sources whose kernels are compiled."""
        return (one for one in self.sources if isinstance(one, Compiled))

    @property
    def builder(self) -> Builder | None:
        """The first source's builder."""
        return self.sources[0].builder if self.sources else None

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Returns why this kernel cannot run this problem, or None. Recorded measurements have the
        outcome."""
        return self.owner(kernel).refusal(kernel, problem) if self.sources else None

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        """Returns the kernel's binary, compiled in the background or taken from the cache."""
        known = self.built_elsewhere(kernel)
        return self.owner(kernel).build(kernel) if known is None else finished(known)

    def source_identity(self) -> str:
        """Hash of the sources of the binaries. A run can be resumed only with the same sources."""
        found = [one.identity for one in self.sources] or [self._identity]
        return found[0] if len(found) == 1 else hashlib.sha256("\n".join(found).encode()).hexdigest()

    def device_options(self) -> Mapping[str, str]:
        """Returns the keyword arguments of the device module's `open_device`. Raises BuildError."""
        if self._presence is None or self.builder is None:
            return {}
        work = str(self.builder.device_work().path)
        variable = "HIP_VISIBLE_DEVICES" if self.arch in AMD_ARCHS else "CUDA_VISIBLE_DEVICES"
        visible = visible_device(variable, self._presence.devices)
        return {"arch": self.arch, "work": work, "visible": visible, "library": self._presence.library}

    @property
    def devices(self) -> int:
        """How many devices this machine has, at least 1: GPUs, or cores."""
        return usable_cores() if self._presence is None else max(1, self._presence.devices)

    def timeout_s(self, problem: Problem) -> float:
        """Time limit for one kernel on a problem, including check and samples, in seconds."""
        rate = _SECONDS_PER_GFLOP_ON_GPU if self.is_gpu else _SECONDS_PER_GFLOP
        base = _BASE_TIMEOUT_INTERPRETED_S if self.interpreted else _BASE_TIMEOUT_S
        return base + rate * problem.flops / 1e9

    def close(self) -> None:
        """Stops outstanding builds."""
        for one in self.sources:
            one.close()

    def _check_owners(self) -> None:
        identities: dict[Kernel, str] = {}
        compiled = list(self.compiled)
        for source in compiled if len(compiled) > 1 else ():
            for kernel in source.declared:
                if identities.setdefault(kernel, source.kernels.identity) != source.kernels.identity:
                    raise BuildError(
                        f"--kernels: two sources have a kernel {kernel.name}, of different code: leave one "
                        "of them out, or rename its function"
                    )
