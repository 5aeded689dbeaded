"""Compilers for CK Tile: hipcc of the user's ROCm or, without ROCm, the ziglang wheel with a header folder.

Both compile a kernel to one shared library that has the host code and embeds the GPU code object.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.compiling.cache import default_cache_folder
from tile_oracle.compiling.ck_tile import offload_bundle
from tile_oracle.compiling.ck_tile.headers import CkTileHeaders
from tile_oracle.compiling.gpu_toolchain import ASSEMBLY, rocm_folders
from tile_oracle.compiling.isa import AMD_ARCHS, GPU_MACHINES, Isa
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
from tile_oracle.files.trusted_folder import check_trusted

HIP_HEADERS = "TILE_ORACLE_HIP_HEADERS"
"""The environment variable that names a folder made by .ci/ck_tile_headers.py."""

MADE = "made.txt"
"""A list of the folder's contents. It is written last, so its presence means that the folder is complete."""

_COMMON = (
    "-std=c++20",
    "-O3",
    "-fvisibility=hidden",
    "-fuse-cuid=none",
    # These flags come from Composable Kernel's build and its GEMM and convolution examples.
    *("-mllvm", "--lsr-drop-solution=1", "-mllvm", "-enable-post-misched=0"),
    *("-mllvm", "-enable-noalias-to-md-conversion=0"),
    "-w",
    # Some CK Tile headers trigger this error of clang 19 and newer.
    "-Wno-missing-template-arg-list-after-template-kw",
)
_ROCM = ("-mllvm", "-amdgpu-early-inline-all=true", "-mllvm", "-amdgpu-function-calls=false")
"""Flags of the same build for ROCm's clang. With them the wheel's clang takes minutes per kernel, not
seconds."""

_HOW = (
    "install ROCm's hipcc (hip-dev), or, to compile without ROCm, run .ci/ck_tile_headers.py of "
    f"tile-oracle's checkout and name its folder in {HIP_HEADERS}"
)


@dataclass(frozen=True, kw_only=True)
class HipccToolchain(Toolchain):
    """ROCm's hipcc: one command for host and device."""

    headers: CkTileHeaders
    compiler: Path

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        # Uncompressed, so that registers, LDS and spills can be read from the code object in the library.
        return (f"--offload-arch={self.arch}", "--no-offload-compress", "-fPIC", *_COMMON, *_ROCM)

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        return ((*self._compile(flags), "-shared", source, "-o", output),)

    def assembly_command(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[str, ...]:
        device = ("--offload-device-only", "--no-gpu-bundle-output", "-S")
        return (*self._compile(flags), *device, source, "-o", output)

    def _compile(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        # The user's headers come before ROCm's, which may include another CK Tile.
        include = ("-I", INCLUDE_FOLDER, "-I", str(self.headers.include))
        return (str(self.compiler), "-x", "hip", *flags, *include)


@dataclass(frozen=True, kw_only=True)
class WheelToolchain(Toolchain):
    """The ziglang wheel's clang with HIP headers from a folder. g++ links the host part.

    The library resolves HIP functions from the process that loads it.
    """

    headers: CkTileHeaders
    wheel: ZigWheel
    linker: Path
    made: Path

    def _flags(self, isa: Isa) -> tuple[str, ...]:
        defines = ("-D__HIP_PLATFORM_AMD__", "-D__HIP_ROCclr__", "-D__AMDGCN_WAVEFRONT_SIZE=64")
        return (f"--offload-arch={self.arch}", "-nogpulib", "-nogpuinc", *defines, *_COMMON)

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        compile_ = self._compile(flags)
        bundle = (sys.executable, "-I", str(Path(offload_bundle.__file__).resolve()))
        embed = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", "kernel.hipfb")
        return (
            self.assembly_command(source, ASSEMBLY, flags),
            *self.wheel.assemble(ASSEMBLY, "kernel.hsaco", self.arch),
            (*bundle, "kernel.hsaco", "kernel.hipfb", self.arch),
            (*compile_, "--offload-host-only", "-fPIC", *embed, "-c", source, "-o", "host.o"),
            (str(self.linker), "-shared", "-Wl,-z,noexecstack", "host.o", "-o", output),
        )

    def assembly_command(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[str, ...]:
        bitcode = ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(self.made / "ockl.bc"))
        device = ("--offload-device-only", "--no-gpu-bundle-output", "-S")
        return (*self._compile(flags), *bitcode, *device, source, "-o", output)

    def _compile(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        wrap = self.made / "wrap"
        return (
            *(*self.wheel.clang, "-x", "hip", *flags),
            *("-isystem", str(wrap / "cuda_wrappers"), "-isystem", str(wrap)),
            *("-I", str(self.made / "include"), "-I", INCLUDE_FOLDER, "-I", str(self.headers.include)),
            *("-include", "__clang_hip_runtime_wrapper.h", "-include", "hip/hip_runtime.h"),
        )


def find_ck_tile_toolchain(
    name: str, arch: str, headers: CkTileHeaders, environment: Mapping[str, str] | None = None
) -> Toolchain:
    """Finds a toolchain for CK Tile's kernels by name: auto, hipcc, ziglang, or the path of a hipcc.

    auto prefers hipcc and falls back to the wheel with its header folder. Raises BuildError, which says what
    is missing.
    """
    if GPU_MACHINES.get(arch) != "amdgcn":
        raise BuildError(
            f"CK Tile's kernels are built for {', '.join(AMD_ARCHS)}, not for {arch}: give --arch "
            f"{AMD_ARCHS[0]}, or leave --ck-tile out"
        )
    env = os.environ if environment is None else environment
    if name in ("zig", "ziglang"):
        return _wheel(arch, headers, env)
    hipcc = _hipcc() if name in ("auto", "hipcc", "rocm") else shutil.which(name)
    if hipcc is not None:
        return _hipcc_toolchain(Path(hipcc).absolute(), "hipcc" if name == "auto" else name, arch, headers)
    if name == "auto":
        return _wheel(arch, headers, env)
    raise BuildError(f"toolchain {name!r} is not on this machine: {_HOW}")


def prepared_folder(environment: Mapping[str, str]) -> Path:
    """Folder of the headers for the wheel: TILE_ORACLE_HIP_HEADERS, else `hip-headers` in the kernel
    cache."""
    given = environment.get(HIP_HEADERS)
    return Path(given).absolute() if given else default_cache_folder(environment) / "hip-headers"


def _hipcc() -> str | None:
    places = (folder / "bin" / "hipcc" for folder in rocm_folders())
    return shutil.which("hipcc") or next((str(p) for p in places if os.access(p, os.X_OK)), None)


@lru_cache(maxsize=8)
def _hipcc_toolchain(compiler: Path, name: str, arch: str, headers: CkTileHeaders) -> HipccToolchain:
    lines = [line.strip() for line in ask_compiler(str(compiler), "--version").splitlines()]
    hip = next((line for line in lines if line.startswith("HIP version")), "")
    if not hip:
        said = lines[0][:80] if lines else ""
        raise BuildError(f"toolchain {name!r} is not hipcc: its --version prints {said!r}; {_HOW}")
    version = version_number(hip, name)
    identity, fingerprint = (
        f"hipcc {version}, {headers.identity}",
        f"{'; '.join(lines[:3])}; {headers.digest}",
    )
    return HipccToolchain(name, version, identity, fingerprint, arch=arch, headers=headers, compiler=compiler)


def _wheel(arch: str, headers: CkTileHeaders, environment: Mapping[str, str]) -> WheelToolchain:
    folder, linker, made = zig_folder(), shutil.which("g++"), prepared_folder(environment)
    check_trusted(made, "HIP's headers")
    try:
        contents = (made / MADE).read_bytes()
    except OSError:
        contents = b""
    needed = {
        "the ziglang wheel": folder, "g++ (its C++ headers, and to link)": linker,
        f"HIP's headers in {made}": contents,
    }  # fmt: skip
    if folder is None or linker is None or not contents:
        missing = ", ".join(what for what, there in needed.items() if not there)
        raise BuildError(f"no compiler for CK Tile was found: no hipcc, and without {missing}; {_HOW}")
    wheel = zig_wheel(folder)
    gcc = version_number(ask_compiler(linker, "--version").partition("\n")[0], linker)
    identity, read = f"{wheel.identity}, {headers.identity}", hashlib.sha256(contents).hexdigest()
    fingerprint = f"{identity}; {wheel.first_line}; g++ {gcc}; {read}; {headers.digest}"
    told = ("ziglang", wheel.version, identity, fingerprint)
    return WheelToolchain(*told, arch=arch, headers=headers, wheel=wheel, linker=Path(linker), made=made)
