"""Finds programs of the CUDA toolkit, such as ptxas and nvcc."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_CUDA = Path("/usr/local/cuda")
_WHEELS = ("cuda_nvcc", "cu13")


def find_cuda_program(name: str) -> Path | None:
    """Finds a program by name or path; None when it is not installed.

    A name is looked up on PATH, below CUDA_HOME, in the wheel nvidia-cuda-nvcc, and in /usr/local/cuda. The
    wheel for CUDA 12 (the extra tile-oracle[cuda]) has only ptxas.
    """
    found = shutil.which(name)
    if found is not None:
        return Path(found).absolute()
    if Path(name).name != name:
        return None
    folders = [Path(os.environ["CUDA_HOME"])] if os.environ.get("CUDA_HOME") else []
    for folder in (*folders, *_wheel_folders(), _CUDA):
        inner = folder / "bin" / name
        if inner.is_file() and os.access(inner, os.X_OK):
            return inner.absolute()
    return None


def _wheel_folders() -> Iterator[Path]:
    """Install folders of the CUDA compiler wheels: nvidia/cuda_nvcc (CUDA 12), nvidia/cu13 (CUDA 13)."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    for place in spec.submodule_search_locations or () if spec else ():
        for inner in _WHEELS:
            yield Path(place) / inner
