"""Finds programs of the CUDA toolkit, such as ptxas and nvcc."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tile_oracle.compiling.toolchain import package_folders

_CUDA = Path("/usr/local/cuda")
_WHEELS = ("cuda_nvcc", "cu13")
"""Folders in `nvidia` of the compiler's wheels for CUDA 12 and 13."""


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
    wheels = (place / inner for place in package_folders("nvidia") for inner in _WHEELS)
    for folder in (*folders, *wheels, _CUDA):
        inner = folder / "bin" / name
        if inner.is_file() and os.access(inner, os.X_OK):
            return inner.absolute()
    return None
