"""Libraries of vendors over the emulated GPU: compiled with the ziglang wheel."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tile_oracle.compiling.toolchain import zig_folder

_FILES = {
    "cublaslt": "libcublasLt.so.13",
    "cudnn": "libcudnn.so.9",
    "hipblaslt": "libhipblaslt.so.1",
    "miopen": "libMIOpen.so.1",
}


def build_library(name: str, folder: Path) -> Path:
    """Compiles tests/shims/NAME.c as the library's file. It asks the process for its libc."""
    wheel = zig_folder()
    assert wheel is not None, "the ziglang wheel is a dependency"
    folder.mkdir(parents=True, exist_ok=True)
    zig, library = str(wheel / "zig"), folder / _FILES[name]
    source = Path(__file__).with_name(f"{name}.c")
    flags = ("-std=gnu2x", "-O1", "-fPIC", "-ffreestanding", "-fvisibility=hidden", "-Wno-unused-parameter")
    for command in (
        (zig, "clang", "-x", "c", *flags, "-c", str(source), "-o", f"{library}.o"),
        (zig, "ld.lld", "-shared", f"{library}.o", "-o", str(library)),
    ):
        subprocess.run(command, check=True, cwd=folder, capture_output=True)
    return library
