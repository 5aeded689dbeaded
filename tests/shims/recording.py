"""The recording library: built with the ziglang wheel, and its record, read back."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tile_oracle.compiling.toolchain import zig_folder

_SOURCE = Path(__file__).with_name("recorder.c")


def build_recorder(folder: Path, *, cuda: bool) -> Path:
    """Compiles the recorder as libamdhip64 or, with `cuda`, as libcuda. It asks the process for its libc."""
    wheel = zig_folder()
    assert wheel is not None, "the ziglang wheel is a dependency"
    zig, library = str(wheel / "zig"), folder / ("libcuda.so" if cuda else "libamdhip64.so")
    macros = ("-DAS_CUDA",) if cuda else ()
    flags = ("-std=gnu2x", "-O1", "-fPIC", "-ffreestanding", "-fvisibility=hidden", *macros)
    commands = (
        (zig, "clang", "-x", "c", *flags, "-c", str(_SOURCE), "-o", f"{library}.o"),
        (zig, "ld.lld", "-shared", f"{library}.o", "-o", str(library)),
    )
    for command in commands:
        subprocess.run(command, check=True, cwd=folder, capture_output=True)
    return library


def read_record(path: Path) -> list[tuple[str, ...]]:
    """Every call so far: its name and its arguments."""
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []
