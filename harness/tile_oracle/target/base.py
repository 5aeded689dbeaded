"""The parent's interface of a target: what can run on it, and facts about its device."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    """How a target builds.

    toolchain: name or path. build_dir: the cache folder. jobs: compilers that run at once. isa: instruction
    set. kernel_source: NAME or NAME=ARGUMENT of a kernel source; "" for the project's own kernels. elsewhere:
    kernels are built here and run on other machines, so that no GPU need be here.
    """

    toolchain: str = "auto"
    build_dir: Path | None = None
    jobs: int | None = None
    isa: str = "native"
    kernel_source: str = ""
    elsewhere: bool = False


class Target(Protocol):
    """The parent's side of a target. It must not touch a device.

    name: its name for --target. arch: the architecture to build kernels for. device_module: the module in
    which the worker finds `open_device(**device_options) -> Device`. device_name: `DeviceInfo.name` if it is
    known without opening the device, else "".
    """

    name: str
    arch: str
    device_module: str
    device_name: str

    @property
    def implementation(self) -> str:
        """The records' column `implementation`: `KernelSource.implementation`."""

    @property
    def builder(self) -> Builder | None:
        """The builder of its kernels; None when nothing is built."""

    def refusal(self, kernel: Kernel, problem: Problem) -> str | None:
        """Why this kernel cannot run this problem, or None."""

    def build(self, kernel: Kernel) -> Future[BuildResult]:
        """The kernel's binary, compiled in the background or taken from the cache."""

    def source_identity(self) -> str:
        """Hash of the sources of the binaries. A run can be resumed only with the same sources."""

    def device_options(self) -> Mapping[str, str]:
        """The keyword arguments of the device module's `open_device`. Raises BuildError."""

    def timeout_s(self, problem: Problem) -> float:
        """Time limit for one kernel on a problem, including check and samples, in seconds."""

    def close(self) -> None:
        """Stops outstanding builds."""


class InParts(ABC):
    """A target whose kernels come from several sources, each of which a target of its own builds."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Target, ...]:
        """The targets of the sources, all for the same device."""

    @abstractmethod
    def part_of(self, kernel: Kernel) -> Target:
        """The target that builds the kernel."""


def parts_of(target: Target) -> tuple[Target, ...]:
    """The targets of its sources: itself alone with one source."""
    return target.parts if isinstance(target, InParts) else (target,)


def part_of(target: Target, kernel: Kernel) -> Target:
    """The target that builds the kernel."""
    return target.part_of(kernel) if isinstance(target, InParts) else target


@dataclass(frozen=True)
class DeviceInfo:
    """The device's name for itself, and the version of its driver (on cpu: of the operating system
    kernel)."""

    name: str
    driver: str


@dataclass(frozen=True)
class DataFiles:
    """Files with a caller's data: both operands, and the output once a kernel has run.

    Each file holds exactly one tensor of `operand_shapes`, in C order and in the dtype's storage format.
    """

    first: Path
    second: Path
    out: Path
