"""Toolchains for GPUs: the ziglang wheel's clang, ROCm's clang, a system clang, hipcc; ptxas if installed.

All of them are clang and get the same flags; build.nvcc is the exception. Kernels need neither vendor headers
nor a device library.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.compiling.isa import GPU_MACHINES, Isa
from tile_oracle.compiling.nvcc import HOW_TO_GET_NVCC, NvccToolchain, find_cuda_program, find_nvcc, is_nvcc
from tile_oracle.compiling.toolchain import (
    INCLUDE_FOLDER,
    Toolchain,
    ZigWheel,
    ask_compiler,
    version_number,
    zig_folder,
    zig_wheel,
)
from tile_oracle.errors import BuildError

_COMMON = (
    "-std=c++20",
    "-O3",
    "-fno-exceptions",
    "-fno-rtti",
    "-ffp-contract=fast",
    "-fno-math-errno",
    # Otherwise the binary contains a hash of the source's path.
    "-fuse-cuid=none",
)
_LANGUAGE: Mapping[str, tuple[str, ...]] = {
    "amdgcn": (
        *("-x", "hip", "--offload-arch={arch}", "--offload-device-only", "--no-gpu-bundle-output"),
        *("-nogpulib", "-nogpuinc"),
    ),
    "nvptx": (
        *("-x", "cuda", "--cuda-gpu-arch={arch}", "--cuda-device-only", "-nocudainc", "-nocudalib"),
        # sm_90 needs PTX 8.0. clang's default version needs the newest driver.
        *("--cuda-feature=+ptx80", "-Wno-unknown-cuda-version"),
    ),
}
HOW_TO_GET_ONE: Mapping[str, str] = {
    "amdgcn": "pip install ziglang, or install ROCm (hipcc, or its clang below ROCM_PATH)",
    "nvptx": f"pip install ziglang, or apt install clang, or {HOW_TO_GET_NVCC}",
}
ASSEMBLY = "kernel.s"
"""File name of a GPU kernel's assembly in the work folder."""

_ROCM_CLANG = ("llvm/bin/clang++", "lib/llvm/bin/clang++")


@dataclass(frozen=True, kw_only=True)
class GpuToolchain(Toolchain):
    """A clang that builds for one GPU architecture."""

    compiler: tuple[str, ...]
    """The start of the command line."""
    ptxas: Path | None = None
    """NVIDIA's assembler; when None, the driver assembles the PTX."""

    @property
    def machine(self) -> str:
        """The compiler's machine of the architecture."""
        return GPU_MACHINES[self.arch]

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        return (*(word.format(arch=self.arch) for word in _LANGUAGE[self.machine]), *_COMMON)

    def assembly_command(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[str, ...]:
        return (*self._compile(flags), "-S", source, "-o", output)

    def _compile(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        wheel = () if self.wheel is None else ("-resource-dir", "resource", "-nostdlibinc")
        return (*self.compiler, *flags, *wheel, "-I", INCLUDE_FOLDER)

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        if self.machine == "nvptx":
            if self.ptxas is None:
                return (self.assembly_command(source, output, flags),)
            assemble = (str(self.ptxas), f"-arch={self.arch}", "-O3", "kernel.ptx", "-o", output)
            return (self.assembly_command(source, "kernel.ptx", flags), assemble)
        if self.wheel is None:
            return ((*self._compile(flags), "-c", source, "-o", output),)
        return (
            self.assembly_command(source, ASSEMBLY, flags),
            *self.wheel.assemble(ASSEMBLY, output, self.arch),
        )


def find_gpu_toolchain(name: str, arch: str) -> GpuToolchain | NvccToolchain:
    """Returns the toolchain of a name for a GPU: auto, ziglang, rocm (its clang), hipcc, clang++, nvcc, or a
    path.

    auto takes the first available one of ziglang, rocm, hipcc (both only for AMD), clang++ and nvcc (only for
    NVIDIA). Raises BuildError, which says how to get one.
    """
    machine = GPU_MACHINES[arch]
    if is_nvcc(name) and machine != "nvptx":
        raise BuildError(f"toolchain {name!r} cannot build for AMD GPUs: {HOW_TO_GET_ONE[machine]}")
    names = gpu_toolchain_names(machine) if name == "auto" else ("ziglang" if name == "zig" else name,)
    tried = (_named(one, arch, machine) for one in names)
    found = next((one for one in tried if one is not None), None)
    if found is None:
        how = HOW_TO_GET_NVCC if is_nvcc(name) else HOW_TO_GET_ONE[machine]
        missing = f"toolchain {name!r} is not on this machine"
        raise BuildError(f"{f'no compiler for {arch} was found' if name == 'auto' else missing}: {how}")
    return found


def gpu_toolchain_names(machine: str) -> tuple[str, ...]:
    """Returns the toolchains that auto tries, in order."""
    return ("ziglang", "rocm", "hipcc", "clang++") if machine == "amdgcn" else ("ziglang", "clang++", "nvcc")


def _named(name: str, arch: str, machine: str) -> GpuToolchain | NvccToolchain | None:
    if is_nvcc(name):
        return find_nvcc(name, arch)
    ptxas = find_ptxas(machine)
    if name == "ziglang":
        folder = zig_folder()
        if folder is None:
            return None
        wheel = zig_wheel(folder)
        known = (wheel.version, wheel.identity, wheel.first_line)
        return _made(name, arch, ptxas, (wheel.zig, "clang"), known, wheel)
    path = _first_program(rocm_folders(), _ROCM_CLANG) if name == "rocm" else _which(name)
    return None if path is None else _clang(path.absolute(), name, arch, ptxas)


def _which(name: str) -> Path | None:
    found = shutil.which(name)
    return None if found is None else Path(found).absolute()


def rocm_folders() -> tuple[Path, ...]:
    """Folders where ROCm may be installed: ROCM_PATH, the parent of hipcc's folder, /opt/rocm."""
    folders = [Path(os.environ["ROCM_PATH"])] if os.environ.get("ROCM_PATH") else []
    hipcc = _which("hipcc")
    if hipcc is not None:
        folders.append(hipcc.resolve().parent.parent)
    return (*folders, Path("/opt/rocm"))


def _first_program(folders: Iterable[Path], inner: Iterable[str]) -> Path | None:
    places = (folder / one for folder in folders for one in inner)
    return next((place for place in places if os.access(place, os.X_OK)), None)


def find_ptxas(machine: str = "nvptx") -> Path | None:
    """Finds NVIDIA's assembler (build.cuda_programs); None when it is missing or the machine is not nvptx."""
    return find_cuda_program("ptxas") if machine == "nvptx" else None


@lru_cache(maxsize=16)
def _clang(path: Path, name: str, arch: str, ptxas: Path | None) -> GpuToolchain:
    lines = [line.strip() for line in ask_compiler(str(path), "--version").splitlines()]
    first = next((line for line in lines if "clang version" in line), "")
    if not first:
        said = lines[0][:80] if lines else ""
        raise BuildError(f"toolchain {name!r} is neither clang nor hipcc: its --version prints {said!r}")
    version = version_number(first.partition("clang version")[2], name)
    kind = next((line for line in lines if line.startswith("HIP version")), "")
    identity = f"{'AMD clang' if 'AMD' in first else 'clang'} {version}{f' ({kind})' if kind else ''}"
    return _made(name, arch, ptxas, (str(path),), (version, identity, first))


def _made(
    name: str,
    arch: str,
    ptxas: Path | None,
    compiler: tuple[str, ...],
    known: tuple[str, str, str],
    wheel: ZigWheel | None = None,
) -> GpuToolchain:
    """known: of the compiler the version, the identity and the first line of --version."""
    version, identity, first_line = known
    suffix = ".hsaco" if GPU_MACHINES[arch] == "amdgcn" else ".ptx"
    if ptxas is not None:
        said = ask_compiler(str(ptxas), "--version").splitlines()
        identity += f", ptxas {version_number(said[-1] if said else '', str(ptxas))}"
        suffix = ".cubin"
    told = (name, version, identity, f"{identity}; {first_line}")
    return GpuToolchain(*told, arch=arch, suffix=suffix, wheel=wheel, compiler=compiler, ptxas=ptxas)
