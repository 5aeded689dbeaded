"""Toolchains for GPUs: the ziglang wheel's clang, ROCm's clang, a system clang, hipcc; ptxas if installed.

All of them are clang and get the same flags; build.nvcc is the exception. Kernels need neither vendor headers
nor a device library.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from tile_oracle.build.cuda_programs import find_cuda_program
from tile_oracle.build.isa import GPU_MACHINES, Isa
from tile_oracle.build.nvcc import HOW_TO_GET_NVCC, NvccToolchain, find_nvcc, is_nvcc
from tile_oracle.build.toolchain import (
    INCLUDE_FOLDER,
    ask_compiler,
    check_found_for,
    version_number,
    zig_folder,
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
_LANGUAGE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
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
)
HOW_TO_GET_ONE: Mapping[str, str] = MappingProxyType(
    {
        "amdgcn": "pip install ziglang, or install ROCm (hipcc, or its clang below ROCM_PATH)",
        "nvptx": f"pip install ziglang, or apt install clang, or {HOW_TO_GET_NVCC}",
    }
)
ASSEMBLY = "kernel.s"
"""File name of a GPU kernel's assembly in the work folder."""

_ROCM_CLANG = ("llvm/bin/clang++", "lib/llvm/bin/clang++")


@dataclass(frozen=True)
class GpuToolchain:
    """A clang that builds for one GPU architecture.

    compiler: the start of the command line. zig: the ziglang wheel's folder, or None; its clang has neither
    its own headers nor a linker named lld beside it. ptxas: NVIDIA's assembler; when None, the driver
    assembles the PTX.
    """

    name: str
    arch: str
    machine: str
    compiler: tuple[str, ...]
    version: str
    fingerprint: str
    identity: str
    zig: Path | None = None
    ptxas: Path | None = None

    @property
    def suffix(self) -> str:
        """File name suffix of a binary."""
        if self.machine == "amdgcn":
            return ".hsaco"
        return ".cubin" if self.ptxas is not None else ".ptx"

    def flags(self, arch: str, isa: Isa) -> tuple[str, ...]:
        check_found_for(self.name, self.arch, arch)
        return (*(word.format(arch=arch) for word in _LANGUAGE[self.machine]), *_COMMON)

    def prepare(self, work: Path) -> None:
        if self.zig is not None:
            resource = work / "resource"
            resource.mkdir()
            (resource / "include").symlink_to(self.zig / "lib" / "include")

    def assembly_command(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[str, ...]:
        """The command that writes the same code as text (PTX for sm_90)."""
        return (*self._compile(flags), "-S", source, "-o", output)

    def _compile(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        wheel = () if self.zig is None else ("-resource-dir", "resource", "-nostdlibinc")
        return (*self.compiler, *flags, *wheel, "-I", INCLUDE_FOLDER)

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        compile_ = self._compile(flags)
        if self.machine == "nvptx":
            if self.ptxas is None:
                return ((*compile_, "-S", source, "-o", output),)
            assemble = (str(self.ptxas), f"-arch={self.arch}", "-O3", "kernel.ptx", "-o", output)
            return ((*compile_, "-S", source, "-o", "kernel.ptx"), assemble)
        if self.zig is None:
            return ((*compile_, "-c", source, "-o", output),)
        # clang would look for lld on PATH. Assembling and linking in separate steps avoids that.
        zig = self.compiler[0]
        target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={self.arch}")
        return (
            self.assembly_command(source, ASSEMBLY, flags),
            (zig, "clang", *target, "-c", ASSEMBLY, "-o", "kernel.o"),
            (zig, "ld.lld", "-shared", "kernel.o", "-o", output),
        )


def find_gpu_toolchain(name: str, arch: str) -> GpuToolchain | NvccToolchain:
    """The toolchain of a name for a GPU: auto, ziglang, rocm (its clang), hipcc, clang++, nvcc, or a path.

    auto takes the first available one of ziglang, rocm, hipcc (both only for AMD), clang++ and nvcc (only for
    NVIDIA). Raises BuildError, which says how to get one.
    """
    machine = GPU_MACHINES[arch]
    if name == "auto":
        for candidate in gpu_toolchain_names(machine):
            found = _named(candidate, arch, machine)
            if found is not None:
                return found
        raise BuildError(f"no compiler for {arch} was found: {HOW_TO_GET_ONE[machine]}")
    if is_nvcc(name) and machine != "nvptx":
        raise BuildError(f"toolchain {name!r} cannot build for AMD GPUs: {HOW_TO_GET_ONE[machine]}")
    found = _named("ziglang" if name == "zig" else name, arch, machine)
    if found is None:
        how = HOW_TO_GET_NVCC if is_nvcc(name) else HOW_TO_GET_ONE[machine]
        raise BuildError(f"toolchain {name!r} is not on this machine: {how}")
    return found


def gpu_toolchain_names(machine: str) -> tuple[str, ...]:
    """The toolchains that auto tries, in order."""
    return ("ziglang", "rocm", "hipcc", "clang++") if machine == "amdgcn" else ("ziglang", "clang++", "nvcc")


def _named(name: str, arch: str, machine: str) -> GpuToolchain | NvccToolchain | None:
    if name == "ziglang":
        folder = zig_folder()
        return None if folder is None else _zig(folder, arch, machine, find_ptxas(machine))
    if is_nvcc(name):
        return find_nvcc(name, arch)
    path = _rocm_clang() if name == "rocm" else _which(name)
    return None if path is None else _clang(path, name, arch, machine, find_ptxas(machine))


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


def _rocm_clang() -> Path | None:
    for folder in rocm_folders():
        for inner in _ROCM_CLANG:
            if os.access(folder / inner, os.X_OK):
                return (folder / inner).absolute()
    return None


def find_ptxas(machine: str = "nvptx") -> Path | None:
    """Finds NVIDIA's assembler (build.cuda_programs); None when it is missing or the machine is not nvptx."""
    return find_cuda_program("ptxas") if machine == "nvptx" else None


@lru_cache(maxsize=16)
def _zig(folder: Path, arch: str, machine: str, ptxas: Path | None) -> GpuToolchain:
    zig = str(folder / "zig")
    first = _first_line(ask_compiler(zig, "clang", "--version"))
    own = ask_compiler(zig, "version").strip()
    version = version_number(first, zig)
    identity = f"clang {version} (ziglang {own})" + _assembler(ptxas)
    fingerprint = f"{identity}; {first}"
    return GpuToolchain(
        "ziglang", arch, machine, (zig, "clang"), version, fingerprint, identity, folder, ptxas
    )


@lru_cache(maxsize=16)
def _clang(path: Path, name: str, arch: str, machine: str, ptxas: Path | None) -> GpuToolchain:
    lines = [line.strip() for line in ask_compiler(str(path), "--version").splitlines()]
    first = next((line for line in lines if "clang version" in line), "")
    if not first:
        said = lines[0][:80] if lines else ""
        raise BuildError(f"toolchain {name!r} is neither clang nor hipcc: its --version prints {said!r}")
    version = version_number(first.partition("clang version")[2], name)
    kind = next((line for line in lines if line.startswith("HIP version")), "")
    identity = f"{'AMD clang' if 'AMD' in first else 'clang'} {version}{f' ({kind})' if kind else ''}"
    identity += _assembler(ptxas)
    return GpuToolchain(
        name, arch, machine, (str(path),), version, f"{identity}; {first}", identity, None, ptxas
    )


def _assembler(ptxas: Path | None) -> str:
    if ptxas is None:
        return ""
    said = ask_compiler(str(ptxas), "--version").splitlines()
    return f", ptxas {version_number(said[-1] if said else '', str(ptxas))}"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text.strip() else ""
