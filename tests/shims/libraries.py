"""Libraries of vendors over the emulated GPU, and what compiles them."""

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
    """Compiles tests/shims/NAME.c as the library's file."""
    folder.mkdir(parents=True, exist_ok=True)
    return compiled(f"{name}.c", folder / _FILES[name], "-Wno-unused-parameter")


def compiled(source: str, library: Path, *flags: str) -> Path:
    """Compiles a file of tests/shims with the ziglang wheel. The library asks the process for its libc."""
    wheel = zig_folder()
    assert wheel is not None, "the ziglang wheel is a dependency"
    zig, path = str(wheel / "zig"), str(Path(__file__).with_name(source))
    flags = ("-std=gnu2x", "-O1", "-fPIC", "-ffreestanding", "-fvisibility=hidden", *flags)
    for command in (
        (zig, "clang", "-x", "c", *flags, "-c", path, "-o", f"{library}.o"),
        (zig, "ld.lld", "-shared", f"{library}.o", "-o", str(library)),
    ):
        subprocess.run(command, check=True, cwd=library.parent, capture_output=True)
    return library
