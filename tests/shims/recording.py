"""The recording library, and its record, read back."""

from __future__ import annotations

from pathlib import Path

from tests.shims.libraries import compiled


def build_recorder(folder: Path, *, cuda: bool) -> Path:
    """Compiles the recorder as libamdhip64 or, with `cuda`, as libcuda."""
    library = folder / ("libcuda.so" if cuda else "libamdhip64.so")
    return compiled("recorder.c", library, *(("-DAS_CUDA",) if cuda else ()))


def read_record(path: Path) -> list[tuple[str, ...]]:
    """Every call so far: its name and its arguments."""
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []
