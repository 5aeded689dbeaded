"""The toolchain nvcc: NVIDIA's compiler, for sm_90.

nvcc includes cuda_runtime.h in every translation unit, and with it the headers of CUDA and of the C and C++
libraries. The kernels need none of them, so an empty file of that name comes first on the include path. No
header of the build machine can then affect a binary, and a toolkit without headers suffices. nvcc still needs
a host compiler, but only to preprocess.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.toolchain import INCLUDE_FOLDER, Toolchain, ask_compiler, package_folders
from tile_oracle.errors import BuildError

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


HOW_TO_GET_NVCC = "install CUDA 12.0 or newer, or pip install nvidia-cuda-nvcc"
_OLDEST = (12, 0)
_HOST_COMPILERS = ("g++", "clang++")
_HEADER_IT_INCLUDES = "cuda_runtime.h"
_EMPTY_HEADER = "// Instead of CUDA's: the kernels need no header.\n"


@dataclass(frozen=True, kw_only=True)
class NvccToolchain(Toolchain):
    """nvcc and the host compiler that it preprocesses with."""

    compiler: Path
    host_compiler: Path
    suffix: str = ".cubin"

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        # Whole-program compilation hides variables, and the host looks up to_launch_info by name.
        return (f"-arch={self.arch}", "-std=c++20", "-O3", "-rdc=true", "-Xcompiler", "-nostdinc")

    def prepare(self, work: Path) -> None:
        (work / _HEADER_IT_INCLUDES).write_text(_EMPTY_HEADER)

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        # nvcc queries the host compiler's version even where there is nothing to preprocess.
        nvcc = (str(self.compiler), "-ccbin", str(self.host_compiler))
        return (
            (*nvcc, *flags, "-I", INCLUDE_FOLDER, "-ptx", source, "-o", "kernel.ptx"),
            (*nvcc, f"-arch={self.arch}", "-cubin", "kernel.ptx", "-o", output),
        )


def is_nvcc(name: str) -> bool:
    """Returns whether a toolchain's name or path is nvcc's: nvcc, nvcc-13.0, /usr/local/cuda/bin/nvcc."""
    return Path(name).name.split("-")[0] == "nvcc"


def find_nvcc(name: str, arch: str) -> NvccToolchain | None:
    """Finds nvcc by name (see tile_oracle.compiling.nvcc) or path; None when it is not installed.

    Raises BuildError when the program is not nvcc, is too old for C++20, or has no host compiler.
    """
    path = find_cuda_program(name)
    if path is None:
        return None
    for host in _HOST_COMPILERS:
        found = shutil.which(host)
        if found is not None:
            return _nvcc(name, arch, path, Path(found).absolute())
    raise BuildError(
        f"toolchain {name!r} ({path}) does not start without a host compiler: apt install g++; "
        "the toolchain ziglang needs none"
    )


@lru_cache(maxsize=16)
def _nvcc(name: str, arch: str, path: Path, host_compiler: Path) -> NvccToolchain:
    said = ask_compiler(str(path), "--version")
    match = re.search(r"release \d+\.\d+, V(\d+)\.(\d+)\.(\d+)", said)
    if match is None or "nvcc" not in said:
        printed = " ".join(said.split())[:80]
        raise BuildError(f"toolchain {name!r} is not nvcc: its --version prints {printed!r}")
    version = ".".join(match.groups())
    if tuple(map(int, match.groups()[:2])) < _OLDEST:
        raise BuildError(f"toolchain {name!r} is nvcc {version}: the kernels are C++20, which needs 12.0")
    # nvcc's front end imitates the host compiler and its version, so both belong in the fingerprint.
    host = " ".join(ask_compiler(str(host_compiler), "--version").splitlines()[:1])
    fingerprint = f"nvcc {version}; {' '.join(said.split())}; {host}"
    known = (name, version, f"nvcc {version}", fingerprint)
    return NvccToolchain(*known, arch=arch, compiler=path, host_compiler=host_compiler)
