"""A compiler whose binaries run on the emulated GPU: ziglang's clang, and the same source for the emulator.

Called as `compiler.py WORK CODE clang ARGUMENTS...` or `... /path/of/ptxas ARGUMENTS...`, with the arguments
that build.gpu_toolchain.GpuToolchain gives to a clang or to ptxas, in a work folder of its builder.
WORK holds emulated libraries; runtime.cpp looks for them in CODE, under image_key of the real binary.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    # The builder does not pass PYTHONPATH on.
    _CHECKOUT = Path(__file__).resolve().parents[3]
    sys.path[:0] = [str(_CHECKOUT / "harness"), str(_CHECKOUT)]

from tests.kernels.emulated_gpu.device import LAUNCHERS, EmulatedGpu
from tile_oracle.compiling.gpu_toolchain import GpuToolchain, find_gpu_toolchain
from tile_oracle.device.gpu_work import WORK_KERNELS

WORK_LAUNCHERS = "TO_LDS_OF_TILES(0)\n" + "".join(f"TO_LAUNCHER({name})\n" for name in WORK_KERNELS)
_EMULATED = "kernel.emulated"
_ARCH = re.compile(r"--(?:offload-arch|cuda-gpu-arch)=(\S+)")


def image_key(image: bytes) -> str:
    """The name of an image for runtime.cpp: the length that its header states, and its CRC-32."""
    size = _image_bytes(image)
    return f"{size:x}-{zlib.crc32(image[:size]):08x}"


def _image_bytes(image: bytes) -> int:
    if image[:4] != b"\x7fELF":
        return len(image)
    programs, sections = struct.unpack_from("<QQ", image, 32)
    program_bytes, program_count, section_bytes, section_count = struct.unpack_from("<4H", image, 54)
    end = max(programs + program_bytes * program_count, sections + section_bytes * section_count)
    for at in range(sections, sections + section_bytes * section_count, section_bytes):
        (kind,) = struct.unpack_from("<I", image, at + 4)
        offset, size = struct.unpack_from("<QQ", image, at + 24)
        end = max(end, offset + (0 if kind == 8 else size))
    return end


def emulated_library(gpu: EmulatedGpu, source: str, arch: str, include: Path | None = None) -> Path:
    """A translation unit of the harness, for the emulator."""
    launchers = WORK_LAUNCHERS if '#include "device_work.hpp"' in source else LAUNCHERS
    return gpu.library(source + launchers, arch, include=include)


def file_under(binary: Path, library: Path, code: Path) -> None:
    """Registers the emulated library for a real binary, atomically."""
    place = code / f"{image_key(binary.read_bytes())}.emulated"
    scratch = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.copyfile(library, scratch)
    scratch.rename(place)


def clang(arch: str) -> GpuToolchain:
    """The toolchain of the real binaries; PTX for sm_90."""
    return replace(find_gpu_toolchain("ziglang", arch), ptxas=None)


def _compile(work: Path, code: Path, arguments: list[str]) -> int:
    arch = next(found[1] for found in map(_ARCH.fullmatch, arguments) if found)
    output = arguments[arguments.index("-o") + 1]
    source = next(word for word in arguments if word.endswith((".hip", ".cu")))
    toolchain, here = clang(arch), Path.cwd()
    toolchain.prepare(here)
    flags = tuple(arguments[: arguments.index("-I")])
    if "-S" in arguments and toolchain.machine == "amdgcn":  # text for the verifier, which nothing loads
        return subprocess.call(toolchain.assembly_command(source, output, flags))
    for command in toolchain.commands(source, output, flags):
        status = subprocess.call(command)
        if status:
            return status
    try:
        library = emulated_library(EmulatedGpu(work), Path(source).read_text(), arch, here / "include")
    except subprocess.CalledProcessError as error:
        print(error.stderr, file=sys.stderr)
        return 1
    shutil.copyfile(library, _EMULATED)
    file_under(Path(output), library, code)
    return 0


def _ptxas(real: str, code: Path, arguments: list[str]) -> int:
    status = subprocess.call([real, *arguments])
    if status == 0 and "-o" in arguments:
        file_under(Path(arguments[arguments.index("-o") + 1]), Path(_EMULATED), code)
    return status


def main(work: str, code: str, program: str, *arguments: str) -> int:
    if program == "clang":
        return _compile(Path(work), Path(code), list(arguments))
    return _ptxas(program, Path(code), list(arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
