"""Reads assembly from a text file, or disassembles code objects with LLVM's llvm-objdump."""

from __future__ import annotations

import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tile_oracle.compiling.ck_tile.library import embedded_code
from tile_oracle.compiling.code_object import read_code_object
from tile_oracle.compiling.elf import AMDGPU, DAMAGED, DYNAMIC_SYMBOLS, SYMBOLS, Elf
from tile_oracle.compiling.gpu_toolchain import rocm_folders
from tile_oracle.compiling.toolchain import ask_compiler
from tile_oracle.errors import BuildError
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.user_file import read_bytes
from tile_oracle.triton.archive import read_archive
from tile_oracle.verify.assembly import Assembly, parse_assembly

_ASSEMBLY = (".s", ".S", ".asm", ".amdgcn")
_IN_ROCM = ("llvm/bin/llvm-objdump", "lib/llvm/bin/llvm-objdump")
_MOST_BYTES = 1 << 30
_DESCRIPTOR_BYTES = 64
_HOW = "install LLVM 20 or newer, or ROCm, or give the compiler's assembly (-S; Triton's .amdgcn file)"
_HOW_ARCHIVE = (
    "; kernels in Triton need no disassembler when they are verified from their file: "
    "tile-oracle pool list --kernels FILE --arch {arch} --verify"
)


def read_assembly(path: Path) -> Assembly:
    """Reads the functions of assembly text, an AMD code object (.hsaco), a shared library that embeds one, or
    a Triton kernel's archive.

    Raises BuildError for any other file, and when no disassembler is found.
    """
    with disk_errors_as(BuildError, f"{path} cannot be read"):
        data = read_bytes(path, _MOST_BYTES)
    if data[:4] == b"PK\x03\x04":
        return _of_archive(path)
    if data[:4] != b"\x7fELF":
        if path.suffix not in _ASSEMBLY and b"\0" in data[:4096]:
            raise BuildError(f"{path} is neither assembly nor a code object")
        return parse_assembly(data.decode("utf-8", "replace"))
    if struct.unpack_from("<H", data, 18)[0] == AMDGPU:
        return disassemble(path, data)
    return disassemble(path, embedded_code(data, path, "gfx9"))


def _of_archive(path: Path) -> Assembly:
    """Returns the functions of all code objects of a Triton kernel's archive. Raises BuildError."""
    try:
        archive = read_archive(path)
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} cannot be verified: {error}") from None
    if not archive.arch.startswith("gfx"):
        raise BuildError(f"{path} contains code for {archive.arch}, not for gfx9")
    images = dict.fromkeys(launch.image for variant in archive.variants for launch in variant.launches)
    try:
        parts = [disassemble(path, image) for image in images]
    except BuildError as error:
        raise BuildError(f"{error}{_HOW_ARCHIVE.format(arch=archive.arch)}") from None
    functions = tuple(function for part in parts for function in part.functions)
    return Assembly(functions, archive.arch, parts[0].compiler)


def disassemble(path: Path, data: bytes) -> Assembly:
    """Disassembles a code object of a file; kernels get the settings of their descriptors. Raises
    BuildError."""
    code = read_code_object(data, str(path))
    arch = re.split(r"[:+-]", code.arch)[0]
    program = find_disassembler(arch)
    with tempfile.NamedTemporaryFile(suffix=".hsaco") as file:
        file.write(data)
        file.flush()
        assembly = parse_assembly(ask_compiler(str(program), "-d", f"--mcpu={arch}", file.name))
    try:
        settings = dict(_descriptors(data))
    except DAMAGED:
        raise BuildError(f"{path}: its kernel descriptors are damaged") from None
    for function in assembly.functions:
        function.settings = settings.get(function.name, {})
        if function.name in code.kernels:
            function.most_threads = code.kernels[function.name].most_threads
    return replace(assembly, target=arch)


def find_disassembler(arch: str) -> Path:
    """Finds an llvm-objdump that supports the architecture, in ROCm or on PATH. Raises BuildError."""
    tried: list[str] = []
    for program in _candidates():
        try:
            said = ask_compiler(str(program), "--version")
        except BuildError:
            continue
        match = re.search(r"LLVM version (\d+)", said) or re.search(r"version (\d+)\.", said)
        # gfx950 needs LLVM 20. A build without the AMDGPU backend does not list amdgcn.
        if match and int(match[1]) >= (20 if arch == "gfx950" else 16) and "amdgcn" in said:
            return program
        tried.append(f"{program} ({'LLVM ' + match[1] if match else 'no LLVM'})")
    found = f"; found only {', '.join(tried)}" if tried else ""
    raise BuildError(f"no llvm-objdump for {arch} was found{found}: {_HOW}")


def _candidates() -> Iterator[Path]:
    for folder in rocm_folders():
        for inner in _IN_ROCM:
            if os.access(folder / inner, os.X_OK):
                yield folder / inner
    for name in ("llvm-objdump", *(f"llvm-objdump-{version}" for version in range(30, 15, -1))):
        found = shutil.which(name)
        if found is not None:
            yield Path(found)


def _descriptors(data: bytes) -> Iterator[tuple[str, dict[str, int]]]:
    """(kernel, settings) of the symbols NAME.kd; the settings have the names of assembly directives."""
    elf = Elf(data)
    for symbol in elf.symbols(SYMBOLS, DYNAMIC_SYMBOLS):
        is_known = symbol.size == _DESCRIPTOR_BYTES and symbol.section < len(elf.sections)
        if symbol.name.endswith(".kd") and is_known:
            (lds_bytes,) = struct.unpack_from("<I", elf.symbol_bytes(symbol))
            yield symbol.name.removesuffix(".kd"), {"group_segment_fixed_size": lds_bytes}
