"""What a build gives: a binary, and the result of building one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tile_oracle.kernel import Kernel


@dataclass(frozen=True)
class Binary:
    """A file that a worker loads, and what made it."""

    path: Path
    source_hash: str
    """sha256 over source, headers, flags, toolchain and CPU features: equal hashes are equal binaries."""
    bytes: int
    toolchain: str
    flags: tuple[str, ...]
    arch: str
    isa: str


@dataclass(frozen=True)
class BuildResult:
    """What became of one kernel."""

    kernel: Kernel
    status: str
    """ok or build_error: a word of tile_oracle.record.schema.STATUSES."""
    binary: Binary | None
    """Not None exactly when the status is ok."""
    log: str
    """What the compiler said, shortened in the middle when it said very much."""
    seconds: float
    """Wall time of the compiler processes; 0.0 when nothing was compiled."""
    cached: bool
    """Whether the binary was there already."""
    interrupted: bool = False
    """Whether the compiler was killed from outside, again and again: the kernel may well compile."""
