"""Options of targets, and what the parent and the worker tell each other about a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tile_oracle.compiling.kernel_source import NATIVE


@dataclass(frozen=True)
class TargetOptions:
    """How a target builds."""

    toolchain: str = "auto"
    """Name or path of the first source's toolchain."""
    build_dir: Path | None = None
    """The cache folder, or a folder of `tile-oracle build` with the first source's binaries."""
    jobs: int | None = None
    """Compilers that run at once."""
    isa: str = "native"
    """The instruction set."""
    sources: tuple[str, ...] = (NATIVE,)
    """NAME or NAME=ARGUMENT of each kernel source. The first has the kernels that no other declares."""
    elsewhere: bool = False
    """Whether the kernels run on other machines, so that no GPU need be here."""


@dataclass(frozen=True)
class DeviceInfo:
    """The device's name for itself, and the version of its driver (on cpu: of the operating system
    kernel)."""

    name: str
    driver: str
