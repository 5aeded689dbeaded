"""The project's own kernels as kernel sources: kernels/cpu and kernels/gpu."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tile_oracle.compiling.code_object import inspect_binary, what_is_wrong, what_is_wrong_for_gpu
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain
from tile_oracle.compiling.isa import GPU_MACHINES, Isa
from tile_oracle.compiling.kernel_source import NATIVE, KernelSource
from tile_oracle.compiling.source import (
    DEVICE_WORK,
    Headers,
    gpu_code_refusal,
    headers_for,
    read_headers,
    source_for,
)
from tile_oracle.compiling.toolchain import Toolchain, find_toolchain
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

_NEEDED_ON_GPU = ("to_conv", "to_launch_info")
_DEVICE_WORK_NEEDED = ("to_compare", "to_reference", "to_fill_integers")


@dataclass(frozen=True)
class CpuFamily(KernelSource):
    """kernels/cpu. Also a base class for other sources whose libraries implement kernels/cpu/abi.h."""

    arch: str
    headers: Headers
    implementation: str = NATIVE

    def unit(self, kernel: Kernel) -> str:
        return source_for(kernel, self.arch)

    def find_toolchain(self, name: str) -> Toolchain:
        return find_toolchain(name)

    def launch_identity(self, kernel: Kernel) -> str | None:
        """ "": the binary holds its launch, in to_launch or to_launch_info."""
        return ""

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        return what_is_wrong(inspect_binary(binary), isa.machine)


@dataclass(frozen=True)
class GpuFamily(CpuFamily):
    """kernels/gpu. Also a base class for other sources whose modules implement kernels/gpu/abi.h."""

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        return gpu_code_refusal(kernel, self.arch)

    def find_toolchain(self, name: str) -> Toolchain:
        return find_gpu_toolchain(name, self.arch)

    def what_is_wrong(self, binary: Path, name: str, isa: Isa) -> str | None:
        needed = _DEVICE_WORK_NEEDED if name == DEVICE_WORK else _NEEDED_ON_GPU
        return what_is_wrong_for_gpu(binary, isa.machine, needed)


def native_source(arch: str, include: Path | None = None) -> KernelSource:
    """Returns the project's kernels for an architecture; `include` replaces the headers that ship for it.

    Raises BuildError for an architecture without kernels, and for headers that cannot be read.
    """
    headers = read_headers(include) if include is not None else headers_for(arch)
    return GpuFamily(arch, headers) if arch in GPU_MACHINES else CpuFamily(arch, headers)


def open_native(arch: str, argument: str) -> KernelSource:
    """Open the project's kernels as a source of `--kernels`. There is no argument."""
    return native_source(arch)
