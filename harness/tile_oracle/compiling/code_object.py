"""Kernel metadata in GPU binaries: the metadata note of AMD code objects, the text of PTX.

LLVM's "User Guide for AMDGPU Backend" describes the note under code object metadata. Its numbers are what the
compiler allocated for one wave (registers), one work-item (scratch) and one workgroup (LDS).
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import field

from tile_oracle.compiling.elf import AARCH64, AMDGPU, CUDA, DAMAGED, DYNAMIC_SYMBOLS, X86_64, Elf
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
        return _what_is_missing(needed, inspect_code_object(path).symbols, "the code object does not hold")
    if data[:4] == b"\x7fELF":
        is_cubin = len(data) > 20 and struct.unpack_from("<H", data, 18)[0] == CUDA
        return None if is_cubin else "the binary is not a cubin"
    text = data.decode("utf-8", "replace")
    if ".target" not in text:
        return "the binary is neither a cubin nor PTX"
    there = {*_PTX_ENTRY.findall(text), *_PTX_GLOBAL.findall(text)}
    return _what_is_missing(needed, there, "the PTX does not hold")


def _what_is_missing(needed: Iterable[str], there: Collection[str], lacks: str) -> str | None:
    missing = [name for name in needed if name not in there]
    return f"{lacks} {', '.join(missing)}" if missing else None


EXPORTS = ("to_abi_version", "to_workspace_bytes", "to_launch")
"""The functions of kernels/cpu/abi.h that a CPU kernel must export: those that a worker calls."""

_MACHINES = {X86_64: "x86_64", AARCH64: "aarch64", AMDGPU: "amdgcn", CUDA: "cuda"}
_SHARED_OBJECT = 3
_WEAK = 2


@dataclass(frozen=True)
class BinaryFacts:
    """Facts about an ELF shared object."""

    machine: str
    """x86_64, aarch64, or `machine` and the ELF number of another machine."""
    exports: frozenset[str]
    """Dynamic symbols that it defines."""
    imports: frozenset[str]
    """Dynamic symbols that it needs from the process, without weak ones."""
    libraries: tuple[str, ...]
    """Libraries that it needs (DT_NEEDED)."""


def inspect_binary(path: Path) -> BinaryFacts:
    """Reads the dynamic symbols of a 64-bit little-endian ELF shared object.

    Raises BuildError when the file is not one or is damaged.
    """
    data = _read(path)
    try:
        return _facts(data)
    except DAMAGED:
        raise BuildError(f"{path} is not a 64-bit ELF shared object, or is damaged") from None


def _facts(data: bytes) -> BinaryFacts:
    elf = Elf(data)
    if elf.type != _SHARED_OBJECT:
        raise ValueError("not a shared object")
    symbols = [symbol for symbol in elf.symbols(DYNAMIC_SYMBOLS) if symbol.name]
    return BinaryFacts(
        _MACHINES.get(elf.machine, f"machine {elf.machine}"),
        exports=frozenset(symbol.name for symbol in symbols if symbol.section),
        imports=frozenset(s.name for s in symbols if not s.section and s.binding != _WEAK),
        libraries=tuple(elf.libraries()),
    )


def what_is_wrong(facts: BinaryFacts, machine: str) -> str | None:
    """Returns why a CPU kernel's binary cannot be used on `machine`, or None.

    A symbol that this process cannot resolve cannot be resolved in a worker either.
    """
    if facts.machine != machine:
        return f"the binary is for {facts.machine}, not {machine}"
    if missing := _what_is_missing(EXPORTS, facts.exports, "the binary does not export"):
        return f"{missing} (kernels/cpu/abi.h)"
    unresolved = sorted(name for name in facts.imports if not _process_has(name))
    if unresolved and not facts.libraries:
        return f"the binary needs {', '.join(unresolved)}, which nothing provides"
    return None


@lru_cache(maxsize=4096)
def _process_has(name: str) -> bool:
    return hasattr(ctypes.CDLL(None), name)
