"""The target `cpu`: kernels of kernels/cpu, compiled for this machine and run on one of its cores."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from tile_oracle.arch import load_arch
from tile_oracle.build.builder import Builder, BuildResult
from tile_oracle.build.source_providers import open_kernel_source
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.target.base import TargetOptions
from tile_oracle.target.cpu_info import cpu_name

_BASE_TIMEOUT_S = 20.0
_SECONDS_PER_GFLOP = 40.0
"""Generous: a GEMM kernel on a depthwise problem reaches only 0.1 GFLOPS, and runs three times."""


class CpuTarget:
    """See tile_oracle.target.base.Target."""

    name = "cpu"
    arch = "cpu"
    device_module = "tile_oracle.device.cpu"

    def __init__(self, options: TargetOptions) -> None:
        source = open_kernel_source(self.arch, options.kernel_source)
        self.builder = Builder(
            self.arch,
            source=source,
            toolchain=options.toolchain,
            build_dir=options.build_dir,
            jobs=options.jobs,
            isa=options.isa,
        )
        self.device_name = cpu_name()
        self._arch = load_arch(self.arch)

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
        return {}

    def timeout_s(self, problem: Problem) -> float:
        return _BASE_TIMEOUT_S + _SECONDS_PER_GFLOP * problem.flops / 1e9

    def close(self) -> None:
        self.builder.close()
