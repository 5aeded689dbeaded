"""Reads ELF files (64-bit, little-endian), which may be damaged: sections, symbols and notes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

X86_64, AARCH64, CUDA, AMDGPU = 62, 183, 190, 224
SYMBOLS, NOTES, DYNAMIC, DYNAMIC_SYMBOLS = 2, 7, 6, 11
"""Section types."""

FAT_SECTION = ".hip_fatbin"
"""The section of a host library with its GPU code, an offload bundle."""

DAMAGED = (ValueError, struct.error, LookupError, OverflowError)
"""The exceptions that reading a damaged file raises."""


class Section(NamedTuple):
    """A section header, field by field as in the file."""

    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Symbol(NamedTuple):
    """section: index of its section, 0 for an undefined symbol. size: bytes from the address on."""

    name: str
    binding: int
    section: int
    address: int
    size: int


class Elf:
    """An ELF file in memory. Raises one of DAMAGED for invalid data."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self._data = data
        self.type, self.machine = struct.unpack_from("<HH", data, 16)
        (table,) = struct.unpack_from("<Q", data, 40)
        entry_size, count, self._names = struct.unpack_from("<3H", data, 58)
        if entry_size < 64:
            raise ValueError("no section table")
        self.sections = [
            Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size)) for i in range(count)
        ]

    def named_sections(self) -> dict[str, Section]:
        """Name -> section, in order."""
        names = self.body(self.sections[self._names])
        found = {_string(names, section.name_offset): section for section in self.sections}
        if len(found) != len(self.sections):
            raise ValueError("sections of the same name")
        return found

    def body(self, section: Section | str) -> bytes:
        """Returns the content of a section, given by name or header."""
        if isinstance(section, str):
            section = self.named_sections()[section]
        end = section.offset + section.size
        if end > len(self._data):
            raise ValueError("section outside the file")
        return self._data[section.offset : end]

    def symbols(self, *types: int) -> Iterator[Symbol]:
        """Yields the symbols of all tables of these section types, in order, including the null symbol."""
        for section in self.sections:
            if section.type in types:
                names = self.body(self.sections[section.link])
                for name, info, _, place, address, size in struct.iter_unpack("<IBBHQQ", self.body(section)):
                    yield Symbol(_string(names, name), info >> 4, place, address, size)

    def symbol_bytes(self, symbol: Symbol) -> bytes:
        """Returns the bytes of a symbol."""
        section = self.sections[symbol.section]
        begin = symbol.address - section.address
        return self.body(section)[begin : begin + symbol.size]

    def libraries(self) -> Iterator[str]:
        """Yields the shared libraries that the file needs (DT_NEEDED)."""
        for section in self.sections:
            if section.type == DYNAMIC:
                names = self.body(self.sections[section.link])
                for tag, value in struct.iter_unpack("<qQ", self.body(section)):
                    if tag == 1:
                        yield _string(names, value)

    def notes(self) -> Iterator[tuple[int, bytes]]:
        """(type, description) of every note. A note has a header of three words, then name and description,
        each padded to words."""
        for section in self.sections:
            if section.type != NOTES:
                continue
            body, at = self.body(section), 0
            while at + 12 <= len(body):
                name_size, size, kind = struct.unpack_from("<III", body, at)
                begin = at + 12 + -(-name_size // 4) * 4
                if begin + size > len(body):
                    raise ValueError("note outside its section")
                yield kind, body[begin : begin + size]
                at = begin + -(-size // 4) * 4


def _string(names: bytes, offset: int) -> str:
    return names[offset : names.index(b"\0", offset)].decode("utf-8")
