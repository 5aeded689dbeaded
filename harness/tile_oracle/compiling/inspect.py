"""Facts about a binary, read from its ELF file without loading it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.compiling.elf import AARCH64, AMDGPU, CUDA, DAMAGED, DYNAMIC_SYMBOLS, X86_64, Elf
from tile_oracle.errors import BuildError
from tile_oracle.files.disk_errors import disk_errors_as

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
    with disk_errors_as(BuildError, f"{path} cannot be read"):
        data = path.read_bytes()
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
    missing = [name for name in EXPORTS if name not in facts.exports]
    if missing:
        return f"the binary does not export {', '.join(missing)} (kernels/cpu/abi.h)"
    unresolved = sorted(name for name in facts.imports if not _process_has(name))
    if unresolved and not facts.libraries:
        return f"the binary needs {', '.join(unresolved)}, which nothing provides"
    return None


@lru_cache(maxsize=4096)
def _process_has(name: str) -> bool:
    return hasattr(ctypes.CDLL(None), name)
