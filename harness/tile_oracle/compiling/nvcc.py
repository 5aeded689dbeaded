"""The toolchain nvcc: NVIDIA's compiler, for sm_90.

nvcc includes cuda_runtime.h in every translation unit, and with it the headers of CUDA and of the C and C++
libraries. The kernels need none of them, so an empty file of that name comes first on the include path. No
header of the build machine can then affect a binary, and a toolkit without headers suffices. nvcc still needs
a host compiler, but only to preprocess.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.compiling.cuda_programs import find_cuda_program
from tile_oracle.compiling.isa import Isa
from tile_oracle.compiling.toolchain import INCLUDE_FOLDER, Toolchain, ask_compiler
from tile_oracle.errors import BuildError

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
    """Finds nvcc by name (see tile_oracle.compiling.cuda_programs) or path; None when it is not installed.

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
    return NvccToolchain(
        name=name,
        version=version,
        identity=f"nvcc {version}",
        fingerprint=f"nvcc {version}; {' '.join(said.split())}; {host}",
        arch=arch,
        compiler=path,
        host_compiler=host_compiler,
    )
