"""Kernel metadata in GPU binaries: the metadata note of AMD code objects, the text of PTX.

LLVM's "User Guide for AMDGPU Backend" describes the note under code object metadata. Its numbers are what the
compiler allocated for one wave (registers), one work-item (scratch) and one workgroup (LDS).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import field

from tile_oracle.compiling.elf import AMDGPU, CUDA, DAMAGED, DYNAMIC_SYMBOLS, Elf
from tile_oracle.errors import BuildError
from tile_oracle.files.disk_errors import disk_errors_as

_METADATA_NOTE = 32
_PTX_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$][\w$]*)")
_PTX_GLOBAL = re.compile(r"\.visible\s+\.(?:global|const)\s[^;=]*?([A-Za-z_$][\w$]*)\s*(?:\[\d*\])?\s*[;=]")


class KernelFacts(msgspec.Struct, frozen=True):
    """One kernel of an AMD code object.

    vgprs: vector registers of a work-item, including accumulator registers. agprs: accumulator registers.
    scratch_bytes: private memory of a work-item. vgpr_spills, sgpr_spills: spilled registers. lds_bytes:
    static LDS, without the dynamic LDS of a launch.
    """

    name: str = field(name=".name")
    vgprs: int = field(name=".vgpr_count")
    sgprs: int = field(name=".sgpr_count")
    lds_bytes: int = field(name=".group_segment_fixed_size")
    scratch_bytes: int = field(name=".private_segment_fixed_size")
    wavefront_size: int = field(name=".wavefront_size")
    most_threads: int = field(name=".max_flat_workgroup_size")
    agprs: int = field(default=0, name=".agpr_count")
    vgpr_spills: int = field(default=0, name=".vgpr_spill_count")
    sgpr_spills: int = field(default=0, name=".sgpr_spill_count")


class _Note(msgspec.Struct):
    kernels: list[KernelFacts] = field(name="amdhsa.kernels")
    target: str = field(name="amdhsa.target")


@dataclass(frozen=True)
class CodeObject:
    """arch: the target, such as gfx950, with its features (xnack, sramecc)."""

    arch: str
    kernels: Mapping[str, KernelFacts]
    symbols: frozenset[str]


def inspect_code_object(path: Path) -> CodeObject:
    """Reads an AMD code object's note. Raises BuildError when the file is not a code object or is damaged."""
    return read_code_object(_read(path), str(path))


def read_code_object(data: bytes, where: str) -> CodeObject:
    """Reads a code object in memory. `where`: its origin, for the error message."""
    try:
        return _code_object(data)
    except (*DAMAGED, TypeError, RecursionError, msgspec.MsgspecError):
        raise BuildError(f"{where} is not an AMD code object, or is damaged") from None


def _read(path: Path) -> bytes:
    with disk_errors_as(BuildError, f"{path} cannot be read"):
        return path.read_bytes()


def _code_object(data: bytes) -> CodeObject:
    elf = Elf(data)
    if elf.machine != AMDGPU:
        raise ValueError("not an ELF file for AMD GPUs")
    note = msgspec.msgpack.decode(dict(elf.notes())[_METADATA_NOTE], type=_Note)
    return CodeObject(
        _arch_of(note.target),
        {kernel.name: kernel for kernel in note.kernels},
        frozenset(symbol.name for symbol in elf.symbols(DYNAMIC_SYMBOLS) if symbol.name and symbol.section),
    )


def _arch_of(target: str) -> str:
    """amdgcn-amd-amdhsa--gfx950:xnack-, or of newer compilers amdgpu9.50-amd-amdhsa-unknown-gfx950."""
    *triple, arch = target.split("-", 4)
    return arch if len(triple) == 4 else ""


def what_is_wrong_for_gpu(path: Path, machine: str, needed: tuple[str, ...]) -> str | None:
    """Returns why a GPU binary cannot be used: damaged, for another machine, or lacking one of the `needed`
    symbols.

    For a cubin, only the ELF header is checked; the driver reads the rest.
    """
    data = _read(path)
    if machine == "amdgcn":
        code = inspect_code_object(path)
        missing = [name for name in needed if name not in code.symbols]
        return f"the code object does not hold {', '.join(missing)}" if missing else None
    if data[:4] == b"\x7fELF":
        is_cubin = len(data) > 20 and struct.unpack_from("<H", data, 18)[0] == CUDA
        return None if is_cubin else "the binary is not a cubin"
    text = data.decode("utf-8", "replace")
    if ".target" not in text:
        return "the binary is neither a cubin nor PTX"
    there = {*_PTX_ENTRY.findall(text), *_PTX_GLOBAL.findall(text)}
    missing = [name for name in needed if name not in there]
    return f"the PTX does not hold {', '.join(missing)}" if missing else None
