"""Cheap facts about a binary, read from the ELF file itself; nothing is loaded."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.errors import BuildError

EXPORTS = ("to_abi_version", "to_workspace_bytes", "to_launch", "to_time")
"""What a CPU kernel must export (kernels/cpu/abi.h)."""

_MACHINES = {62: "x86_64", 183: "aarch64", 224: "amdgcn", 190: "cuda"}
_SHARED_OBJECT = 3
_DYNSYM = 11
_DYNAMIC = 6
_NEEDED = 1
_WEAK = 2


@dataclass(frozen=True)
class BinaryFacts:
    """What an ELF shared object says of itself."""

    bytes: int
    machine: str
    """x86_64, aarch64, or the ELF number of another machine."""
    exports: frozenset[str]
    """Dynamic symbols that it defines."""
    imports: frozenset[str]
    """Dynamic symbols that it needs from the process; weak ones are left out."""
    libraries: tuple[str, ...]
    """Libraries that it asks the loader for (DT_NEEDED)."""


def inspect_binary(path: Path) -> BinaryFacts:
    """Reads the dynamic symbols of a 64-bit little-endian ELF shared object.

    Raises BuildError when the file is none, or is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return _facts(data)
    except (struct.error, ValueError, IndexError, OverflowError):
        raise BuildError(f"{path} is not a 64-bit ELF shared object, or is damaged") from None


def _facts(data: bytes) -> BinaryFacts:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not ELF64, little-endian")
    kind, machine = struct.unpack_from("<HH", data, 16)
    (section_table,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    if kind != _SHARED_OBJECT or entry_size < 64:
        raise ValueError("not a shared object")
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_table + i * entry_size) for i in range(count)]
    exports: set[str] = set()
    imports: set[str] = set()
    libraries: list[str] = []
    for section in sections:
        if section[1] not in (_DYNSYM, _DYNAMIC):
            continue
        body, names = _body(data, section), _body(data, sections[section[6]])
        if section[1] == _DYNSYM:
            for name, info, _, place, _, _ in struct.iter_unpack("<IBBHQQ", body):
                if name and place:
                    exports.add(_string(names, name))
                elif name and info >> 4 != _WEAK:
                    imports.add(_string(names, name))
        else:
            libraries += [
                _string(names, value) for tag, value in struct.iter_unpack("<qQ", body) if tag == _NEEDED
            ]
    known = _MACHINES.get(machine, f"machine {machine}")
    return BinaryFacts(len(data), known, frozenset(exports), frozenset(imports), tuple(libraries))


def _body(data: bytes, section: tuple[int, ...]) -> bytes:
    offset, size = section[4], section[5]
    if offset + size > len(data):
        raise ValueError("section outside the file")
    return data[offset : offset + size]


def _string(names: bytes, offset: int) -> str:
    return names[offset : names.index(b"\0", offset)].decode("utf-8")


def what_is_wrong(facts: BinaryFacts, machine: str) -> str | None:
    """Why a CPU kernel's binary could not be used on `machine`; None when it can be.

    A name that this process does not have would fail to load in a worker, which has no more than it.
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
