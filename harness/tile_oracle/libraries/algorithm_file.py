"""The file that stands for a library's algorithm where other kernels have a binary, and what writes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tile_oracle.compiling.binary import Binary
from tile_oracle.errors import BuildError
from tile_oracle.files.atomic_file import write_atomically

SUFFIX = ".algorithm"


@dataclass(frozen=True)
class AlgorithmFile:
    """library, path, version: the library that has the algorithm. data: see vendor.offers.Offer. kernel: its
    full name."""

    library: str
    path: str
    version: str
    kernel: str
    data: str

    def binary(self, folder: Path, arch: str) -> Binary:
        """Writes the file unless it is there. Raises BuildError when it cannot be written."""
        content = msgspec.json.encode(self)
        digest = hashlib.sha256(content).hexdigest()
        path = folder / f"{digest}{SUFFIX}"
        if not path.exists():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content)
            except OSError as error:
                raise BuildError(f"{path} cannot be written: {error.strerror or error}") from None
        toolchain = f"{self.library} {self.version}"
        return Binary(path, digest, len(content), toolchain, (), arch, arch)
