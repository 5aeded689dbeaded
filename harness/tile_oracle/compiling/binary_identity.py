"""A hash of what a binary does, without what a rebuild may change: link time, paths, the compiler's name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from tile_oracle.compiling.ck_tile.offload_bundle import code_objects
from tile_oracle.compiling.elf import DAMAGED, FAT_SECTION, Elf
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.kernel import Kernel

_LOADED = 2
"""The section flag SHF_ALLOC: the section is in memory when the code runs."""
_NOBITS = 8
_BUILD_ID = ".note.gnu.build-id"
_CUBIN_METADATA = ".nv.info"
_PTX_COMMENT = re.compile(rb"//[^\n]*")
_PTX = re.compile(rb"^\s*\.target\s", re.MULTILINE)


def binary_identity(path: Path) -> str:
    """sha256 over code, constants and metadata, hexadecimal. Equal for two names of the same kernel.

    For an ELF file it covers every section that is loaded, except the build id. For a host library with GPU
    code it covers only the GPU code, because the host part holds the kernel's name. For PTX it covers the
    text without comments. Any other file counts as a whole. Raises BuildError for a file that cannot be read.
    """
    with disk_errors_as(BuildError, f"{path} cannot be read"):
        data = path.read_bytes()
    try:
        return identity_of(data)
    except DAMAGED:
        raise BuildError(f"{path} is damaged: build it again") from None


def identity_of(data: bytes) -> str:
    """`binary_identity` of a file in memory. Raises one of DAMAGED for a damaged ELF file."""
    total = hashlib.sha256()
    for name, content in _parts(data):
        total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def _parts(data: bytes) -> Iterator[tuple[str, bytes]]:
    if data[:4] != b"\x7fELF":
        yield "text", b"\n".join(_PTX_COMMENT.sub(b"", data).split()) if _PTX.search(data) else data
        return
    elf = Elf(data)
    sections = elf.named_sections()
    if FAT_SECTION in sections:
        for target, code in sorted(code_objects(elf.body(FAT_SECTION)).items()):
            if code:
                yield target, identity_of(code).encode()
        return
    for name, section in sections.items():
        kept = section.flags & _LOADED or name.startswith(_CUBIN_METADATA)
        if kept and name != _BUILD_ID and section.type != _NOBITS:
            yield name, elf.body(section)
        elif kept and section.type == _NOBITS:
            yield name, str(section.size).encode()


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
