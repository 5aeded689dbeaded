"""The parent's side of a GPU target: what to build and how long to wait. It touches no device."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from tile_oracle.arch import load_arch
from tile_oracle.build.builder import Builder, BuildResult
from tile_oracle.build.kernel_source import CK_TILE, KernelSource
from tile_oracle.build.source_providers import open_kernel_source
from tile_oracle.errors import DeviceMissingError
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.target.base import TargetOptions
from tile_oracle.target.gpu_presence import Presence, visible_device

_BASE_TIMEOUT_S = 20.0
_SECONDS_PER_TFLOP = 20.0
"""Generous: a kernel with 16-wide tiles on a depthwise problem stays far below 1 TFLOPS, and runs often."""


class GpuTarget:
    """See tile_oracle.target.base.Target. Subclasses set the attributes of their GPU.

    visible_variable: the environment variable that selects the devices visible to the runtime.
    """

    name: str
    arch: str
    device_module: str
    device_name = ""
    visible_variable: str

    def __init__(
        self, options: TargetOptions, presence: Presence, source: KernelSource | None = None
    ) -> None:
        """`source`: the kernel source; by default the one in the options.

        Raises DeviceMissingError on a machine without such a GPU, BuildError without a compiler for it.
        """
        source = source or open_kernel_source(self.arch, options.kernel_source)
        if not presence.usable and not options.elsewhere:
            raise DeviceMissingError(f"--target {self.name} cannot run here: {presence.why}")
        self._presence = presence
        arch = load_arch(self.arch)
        self._arch = arch.unlisted if source is not None and source.implementation == CK_TILE else arch
        self.builder = Builder(
            self.arch,
            toolchain=options.toolchain,
            build_dir=options.build_dir,
            jobs=options.jobs,
            isa=options.isa,
            source=source,
        )

    @property
    def implementation(self) -> str:
        return self.builder.source.implementation

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        missing = self.builder.source.refusal(kernel, problem)
        return missing or self._arch.refusal(kernel) or self._arch.problem_refusal(kernel, problem)

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        return self.builder.submit(kernel)

    def source_identity(self) -> str:
        return self.builder.source_identity

    def device_options(self) -> Mapping[str, str]:
        visible = visible_device(self.visible_variable, self._presence.devices)
        return {"work": str(self.builder.device_work().path), "visible": visible}

    def timeout_s(self, problem: Problem) -> float:
        return _BASE_TIMEOUT_S + _SECONDS_PER_TFLOP * problem.flops / 1e12

    def close(self) -> None:
        self.builder.close()
