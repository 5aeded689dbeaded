"""What a run of a kernel is, whatever the kernel's name: its binary and its launch."""

from __future__ import annotations

from pathlib import Path

from tile_oracle.compiling.binary_identity import binary_identity
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.kernel import Kernel

RunIdentity = tuple[str, str]
"""Identity of the binary and of the launch."""


def run_identity(source: KernelSource, kernel: Kernel, binary: Path) -> RunIdentity | None:
    """Equal for kernels that do the same on every problem that both take.

    None where that cannot be known: for a damaged binary, and for a source that does not state its launches.
    """
    try:
        launch = source.launch_identity(kernel)
        return None if launch is None else (binary_identity(binary), launch)
    except (BuildError, KernelError):
        return None
