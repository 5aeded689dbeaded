"""The vendors' libraries: for which operation and target each is, and where its file is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.arch.table import fp8_refusal
from tile_oracle.compiling.isa import AMD_ARCHS
from tile_oracle.errors import BuildError
from tile_oracle.kernel import source_of
from tile_oracle.problem import Problem
from tile_oracle.targets.gpu_presence import LIBRARY_FOLDERS, find_shared_library, folders_of_loader


@dataclass(frozen=True)
class Library:
    """title: its name in prose. ops, archs: the operations and the targets that it is for.

    files: names of its file, the newest version first. folders: where wheels put it, below a folder of
    sys.path. packages: the packages of PyPI that have it. dtypes: those of its problems, () for all.
    """

    name: str
    title: str
    ops: tuple[str, ...]
    archs: tuple[str, ...]
    files: tuple[str, ...]
    folders: tuple[str, ...]
    packages: str
    dtypes: tuple[str, ...] = ()

    def takes(self, problem: Problem, arch: str) -> bool:
        """Returns whether the library computes problems of this operation on this target."""
        if fp8_refusal(problem.kind, arch) is not None or problem.kind.words.get("scale") == "mx":
            return False
        dtypes = self.dtypes or (problem.dtype,)
        return problem.op in self.ops and problem.dtype in dtypes and arch in self.archs


_ALL = (
    Library(
        "cublaslt", "cuBLASLt", ("gemm", "scaled_gemm", "fused_gemm"), ("sm_90",),
        ("libcublasLt.so.13", "libcublasLt.so.12"), ("nvidia/cu13/lib", "nvidia/cublas/lib", "torch/lib"),
        "nvidia-cublas or nvidia-cublas-cu12",
    ),
    Library(
        "hipblaslt", "hipBLASLt", ("gemm", "scaled_gemm", "fused_gemm"), AMD_ARCHS,
        ("libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"), ("torch/lib",), "ROCm (hipblaslt)",
    ),
    Library(
        "cudnn", "cuDNN", ("grouped_conv", "attention"), ("sm_90",), ("libcudnn.so.9",),
        ("nvidia/cudnn/lib", "torch/lib"), "nvidia-cudnn-cu13 or nvidia-cudnn-cu12",
    ),
    Library("torch", "PyTorch", ("fused_moe",), ("sm_90",), ("libtorch_cuda.so",), ("torch/lib",), "torch",
            ("bf16",)),  # torch._grouped_mm has no scales
    Library(
        "miopen", "MIOpen", ("grouped_conv",), AMD_ARCHS, ("libMIOpen.so.1", "libMIOpen.so"), ("torch/lib",),
        "ROCm (miopen-hip)",
    ),
)  # fmt: skip
LIBRARIES: Mapping[str, Library] = {one.name: one for one in _ALL}
"""All libraries, by name."""


def is_library_name(name: str) -> bool:
    """Returns whether a full kernel name is that of a library's algorithm."""
    return source_of(name) in LIBRARIES


def find_library(library: Library, given: str = "") -> Path:
    """Returns the library's file: the given one, else a wheel's, else LD_LIBRARY_PATH's or the system's.

    It is not loaded. Raises BuildError, which says what to install, when there is none.
    """
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise BuildError(f"--kernels {library.name}={given}: there is no such file")
        return path.resolve()
    wheels = (Path(entry or ".") / one for entry in dict.fromkeys(sys.path) for one in library.folders)
    found = find_shared_library(library.files, (*wheels, *folders_of_loader(), *LIBRARY_FOLDERS))
    if not found:
        raise BuildError(
            f"--kernels {library.name}: {library.files[0]} is not on this machine: "
            f"install {library.packages}, or give its path (--kernels {library.name}=PATH)"
        )
    return Path(found).resolve() if Path(found).is_file() else Path(found)
