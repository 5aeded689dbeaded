"""The GPU resources that a kernel uses, read from its binary, as columns of a record."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from tile_oracle.arch.occupancy import occupancy
from tile_oracle.compiling.ck_tile.library import code_object_in, instances, most_demanding
from tile_oracle.compiling.code_object import KernelFacts, read_code_object
from tile_oracle.compiling.elf import DAMAGED, DYNAMIC_SYMBOLS, SYMBOLS, Elf, Symbol
from tile_oracle.compiling.machine_code import amd_code, main_loop_matrix_instructions, nvidia_code, ptx_code
from tile_oracle.errors import BuildError
from tile_oracle.triton.archive import SUFFIX as TRITON_SUFFIX
from tile_oracle.triton.archive import read_archive

KERNEL = "to_conv"
_LAUNCH_INFO = "to_launch_info"

_CUBIN_INFO = ".nv.info"
_SIZED = 4
_REGISTERS, _FRAME = 0x2F, 0x11
_REGISTER_BYTES = 4


@dataclass(frozen=True)
class CodeFacts:
    """Resource use of a kernel. A field is None if the binary does not state it; on cpu all are None.

    vgprs: vector registers of a work-item; on AMD including accumulators, on NVIDIA all registers.
    agprs, sgprs: accumulator and scalar registers.
    lds_bytes: LDS (shared memory) of a workgroup, static and dynamic.
    scratch_bytes: private memory of a work-item.
    spills: spilled registers. On NVIDIA the words of a work-item's stack frame, since kernels/gpu uses the
    stack for nothing else.
    workgroups_per_cu, waves_per_cu: active workgroups and waves of a compute unit (arch.occupancy).
    loop_matrix_instructions: matrix instructions in the body of the main loop, counted in the machine code.
    The body is one step of tile_k for most pipelines, and several steps for `mem`.
    """

    vgprs: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    lds_bytes: int | None = None
    scratch_bytes: int | None = None
    spills: int | None = None
    workgroups_per_cu: int | None = None
    waves_per_cu: int | None = None
    loop_matrix_instructions: int | None = None


CODE_FACTS: tuple[str, ...] = tuple(CodeFacts.__dataclass_fields__)


@lru_cache(maxsize=4096)
def code_facts(path: Path, arch: str) -> CodeFacts:
    """Returns the facts of a kernel's binary. For PTX, which the driver assembles, only the matrix
    instructions.

    A binary that cannot be read gives no facts; the build has already checked it.
    """
    try:
        if path.suffix == TRITON_SUFFIX:
            return _archive(path, arch)
        if arch.startswith("gfx"):
            if path.suffix == ".so":
                return _library(path, arch)
            data = path.read_bytes()
            return _of_code_object(data, str(path), arch, KERNEL, *_launch_info(Elf(data)))
        if arch.startswith("sm_") and path.suffix == ".cubin":
            elf = Elf(path.read_bytes())
            return _of_cubin(elf, arch, KERNEL, *_launch_info(elf))
        if arch.startswith("sm_") and path.suffix == ".ptx":
            lines = ptx_code(path.read_text("utf-8", "replace"), KERNEL)
            return CodeFacts(loop_matrix_instructions=main_loop_matrix_instructions(lines))
    except (BuildError, OSError, ValueError, *DAMAGED):
        pass
    return CodeFacts()


def _archive(path: Path, arch: str) -> CodeFacts:
    """Returns the facts of a Triton kernel's first launch, as compiled for aligned problems."""
    first = read_archive(path).variants[0].launches[0]
    elf, launched = Elf(first.image), (first.threads, first.lds_bytes)
    if arch.startswith("sm_"):
        # Matrix instructions of warp groups (wgmma) are not counted, and 0 would say that there are none.
        facts = _of_cubin(elf, arch, first.function, *launched)
        return replace(facts, loop_matrix_instructions=facts.loop_matrix_instructions or None)
    return _of_code_object(first.image, str(path), arch, first.function, *launched)


def _of_code_object(
    data: bytes, where: str, arch: str, kernel: str, threads: int, dynamic_lds_bytes: int
) -> CodeFacts:
    facts = read_code_object(data, where).kernels[kernel]
    lds_bytes = facts.lds_bytes + dynamic_lds_bytes
    held = occupancy(arch, threads, facts.vgprs, lds_bytes, facts.sgprs)
    loop = main_loop_matrix_instructions(amd_code(_symbol_bytes(Elf(data), kernel)))
    return replace(_of_amd(facts, lds_bytes), **asdict(held), loop_matrix_instructions=loop)


def _library(path: Path, arch: str) -> CodeFacts:
    """Returns the facts of a CK Tile library's most demanding instance. All its LDS is static.

    Occupancy is left out, because the number of threads in a launch depends on the problem.
    """
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


def _of_cubin(elf: Elf, arch: str, name: str, threads: int, dynamic_lds_bytes: int) -> CodeFacts:
    """Reads the section .nv.info: records of (form, attribute, size), each followed by its value."""
    kernel = next(number for number, symbol in enumerate(_symbols(elf)) if symbol.name == name)
    attributes = _attributes(elf.body(_CUBIN_INFO))
    found = {attribute: value for attribute, number, value in attributes if number == kernel}
    static = elf.named_sections().get(f".nv.shared.{name}")
    lds_bytes = (static.size if static else 0) + dynamic_lds_bytes
    frame_bytes = found.get(_FRAME)
    held = occupancy(arch, threads, found[_REGISTERS], lds_bytes)
    return CodeFacts(
        vgprs=found[_REGISTERS],
        lds_bytes=lds_bytes,
        scratch_bytes=frame_bytes,
        spills=None if frame_bytes is None else -(-frame_bytes // _REGISTER_BYTES),
        **asdict(held),
        loop_matrix_instructions=main_loop_matrix_instructions(nvidia_code(elf.body(f".text.{name}"))),
    )


def _attributes(body: bytes) -> Iterator[tuple[int, int, int]]:
    """(attribute, symbol, value) of the attributes that belong to a symbol."""
    at = 0
    while at + 4 <= len(body):
        form, attribute, size = struct.unpack_from("<BBH", body, at)
        if form == _SIZED and size == 8:
            yield attribute, *struct.unpack_from("<II", body, at + 4)
        at += 4 + size * (form == _SIZED)


def _symbols(elf: Elf) -> list[Symbol]:
    """Returns the dynamic symbol table, or the full symbol table when there is no dynamic one."""
    return list(elf.symbols(DYNAMIC_SYMBOLS)) or list(elf.symbols(SYMBOLS))


def _symbol_bytes(elf: Elf, name: str) -> bytes:
    """Returns the bytes of a symbol. Raises KeyError."""
    return elf.symbol_bytes({symbol.name: symbol for symbol in _symbols(elf)}[name])


def _launch_info(elf: Elf) -> tuple[int, int]:
    """Threads and dynamic LDS bytes: the second and third integer of to_launch_info (kernels/gpu/abi.h)."""
    _, threads, lds_bytes = struct.unpack_from("<3i", _symbol_bytes(elf, _LAUNCH_INFO))
    return int(threads), int(lds_bytes)
