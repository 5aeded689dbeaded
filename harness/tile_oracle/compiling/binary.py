"""The results of a build: a binary, and the outcome for one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tile_oracle.kernel import Kernel


@dataclass(frozen=True)
class Binary:
    """A file that a worker loads, with its provenance."""

    path: Path
    source_hash: str
    """sha256 over source, headers, flags, toolchain and CPU features. Equal hashes mean equal binaries."""
    bytes: int
    toolchain: str
    flags: tuple[str, ...]
    arch: str
    isa: str


@dataclass(frozen=True)
class BuildResult:
    """The outcome of building one kernel."""

    kernel: Kernel
    status: str
    """ok or build_error (tile_oracle.record.schema.STATUSES)."""
    binary: Binary | None
    """Set if and only if the status is ok."""
    log: str = ""
    """The compiler's output; the middle of a very long output is left out."""
    seconds: float = 0.0
    """Wall time of the compiler processes; 0.0 when nothing was compiled."""
    cached: bool = True
    """Whether the binary came from the cache or a prebuilt folder."""
    interrupted: bool = False
    """Whether the compiler was killed from outside on every attempt. The kernel itself may well compile."""
    failed_with: str = ""
    """The toolchain that was tried, where there is no binary to name it."""

    @property
    def toolchain(self) -> str:
        """The toolchain of the binary, or of the attempt to make one; "" when none was needed."""
        return self.failed_with if self.binary is None else self.binary.toolchain
