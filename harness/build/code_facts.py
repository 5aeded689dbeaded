"""What a kernel takes of a GPU, read from its binary: the columns of a record that say so."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.build.ck_tile.library import code_object_in, instances, most_demanding
from harness.build.code_object import KernelFacts, elf_sections, inspect_code_object, section_body
from harness.errors import BuildError

KERNEL = "to_conv"
_LAUNCH_INFO = "to_launch_info"

_CUBIN_INFO = ".nv.info"
_SIZED = 4
_REGISTERS, _FRAME = 0x2F, 0x11
_SYMBOL_TABLES = (2, 11)


@dataclass(frozen=True)
class CodeFacts:
    """None where the binary does not say (and everywhere on cpu).

    vgprs: vector registers of a work-item, on AMD accumulators included; on NVIDIA its registers.
    agprs, sgprs: accumulator and scalar registers. lds_bytes: LDS (shared memory) of a workgroup, static
    and dynamic. scratch_bytes: private memory of a work-item. spills: registers that did not fit.
    """

    vgprs: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    lds_bytes: int | None = None
    scratch_bytes: int | None = None
    spills: int | None = None


CODE_FACTS: tuple[str, ...] = tuple(CodeFacts.__dataclass_fields__)


@lru_cache(maxsize=4096)
def code_facts(path: Path, arch: str) -> CodeFacts:
    """The facts of a kernel's binary; of PTX, which the driver assembles, there are none.

    A binary that cannot be read has none either: it was looked at when it was built.
    """
    try:
        if arch.startswith("gfx"):
            return _library(path, arch) if path.suffix == ".so" else _amd(path)
        if arch.startswith("sm_") and path.suffix == ".cubin":
            return _cubin(path.read_bytes())
    except (BuildError, OSError, struct.error, ValueError, KeyError, IndexError):
        pass
    return CodeFacts()


def _amd(path: Path) -> CodeFacts:
    facts = inspect_code_object(path).kernels[KERNEL]
    return _of_amd(facts, facts.lds_bytes + _dynamic_lds_bytes(path.read_bytes()))


def _library(path: Path, arch: str) -> CodeFacts:
    """Of a library of CK Tile's, whose LDS is all static: its most demanding instance."""
    facts = most_demanding(instances(code_object_in(path, arch)))
    return _of_amd(facts, facts.lds_bytes)


def _of_amd(facts: KernelFacts, lds_bytes: int) -> CodeFacts:
    return CodeFacts(
        vgprs=facts.vgprs,
        agprs=facts.agprs,
        sgprs=facts.sgprs,
        lds_bytes=lds_bytes,
        scratch_bytes=facts.scratch_bytes,
        spills=facts.vgpr_spills + facts.sgpr_spills,
    )


def _cubin(data: bytes) -> CodeFacts:
    """By the section .nv.info: (form, attribute, size), then the value."""
    sections = elf_sections(data)
    kernel = next(number for number, (name, *_) in enumerate(_symbols(data)) if name == KERNEL)
    found: dict[int, int] = {}
    for attribute, symbol, value in _attributes(section_body(data, sections[_CUBIN_INFO])):
        if symbol == kernel:
            found[attribute] = value
    static = sections.get(f".nv.shared.{KERNEL}")
    return CodeFacts(
        vgprs=found[_REGISTERS],
        lds_bytes=(static[5] if static else 0) + _dynamic_lds_bytes(data),
        scratch_bytes=found.get(_FRAME),
    )


def _attributes(body: bytes) -> Iterator[tuple[int, int, int]]:
    """(attribute, symbol, value) of those that are about a symbol."""
    at = 0
    while at + 4 <= len(body):
        form, attribute, size = struct.unpack_from("<BBH", body, at)
        at += 4
        if form != _SIZED:
            continue
        if size == 8:
            yield attribute, *struct.unpack_from("<II", body, at)
        at += size


def _symbols(data: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, section, address) of every symbol, in order, of the only symbol table or the dynamic one."""
    tables = [section for section in elf_sections(data).values() if section[1] in _SYMBOL_TABLES]
    table = max(tables, key=lambda section: section[1])
    names = section_body(data, list(elf_sections(data).values())[table[6]])
    for name, _, _, section, address, _ in struct.iter_unpack("<IBBHQQ", section_body(data, table)):
        yield names[name : names.index(b"\0", name)].decode(), section, address


def _dynamic_lds_bytes(data: bytes) -> int:
    """The third number of to_launch_info (kernels/gpu/abi.h)."""
    for name, number, address in _symbols(data):
        if name == _LAUNCH_INFO:
            section = list(elf_sections(data).values())[number]
            _, _, lds_bytes = struct.unpack_from("<3i", section_body(data, section), address - section[3])
            return int(lds_bytes)
    raise KeyError(_LAUNCH_INFO)
