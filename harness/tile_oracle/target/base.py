"""What a target is to the parent process: what can run where, and what its device says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

if TYPE_CHECKING:
    from tile_oracle.build.builder import Builder, BuildResult


@dataclass(frozen=True)
class TargetOptions:
    """How a target builds: toolchain by name or path, build folder, compilers at once, instruction set.

    kernel_source: whose kernels are to run, as NAME or NAME=ARGUMENT; "" for our own.
    """

    toolchain: str = "auto"
    build_dir: Path | None = None
    jobs: int | None = None
    isa: str = "native"
    kernel_source: str = ""


class Target(Protocol):
    """The parent's side. Nothing here may touch a device.

    name: what --target calls it. arch: the architecture that kernels are built for. device_module: where
    the worker finds `open_device(**device_options) -> Device`. device_name: `DeviceInfo.name`, if that is
    known without opening the device, else "".
    """

    name: str
    arch: str
    device_module: str
    device_name: str

    @property
    def implementation(self) -> str:
        """Whose kernels it runs, as records say it: `KernelSource.implementation`."""

    @property
    def builder(self) -> Builder | None:
        """What makes its kernels; None where nothing is built."""

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why this kernel cannot run this problem, or None."""

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        """The kernel's binary, compiled in the background or taken from the cache."""

    def source_identity(self) -> str:
        """What the binaries are made from: a run may only be resumed with the same."""

    def device_options(self) -> Mapping[str, str]:
        """What the device module's `open_device` takes by name. Raises BuildError."""

    def timeout_s(self, problem: Problem) -> float:
        """How long one kernel may take on a problem, check and samples included."""

    def close(self) -> None:
        """Stop builds that nobody waits for any more."""


@dataclass(frozen=True)
class DeviceInfo:
    """The device's own name, and the version of the driver (on cpu: of the operating system's kernel)."""

    name: str
    driver: str


@dataclass(frozen=True)
class DataFiles:
    """Where a caller's data lie: both operands and, once a kernel has run, its output.

    Each file holds one tensor of `operand_shapes` and nothing else, in C order, as the dtype is stored.
    """

    first: Path
    second: Path
    out: Path
