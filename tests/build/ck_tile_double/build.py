"""Builds libraries of the double's kernels with the adapter's code, and the HIP double they run on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.build.builder import Builder
from harness.build.ck_tile.api import CkTileApi, detect
from harness.build.ck_tile.headers import find_headers
from harness.build.ck_tile.toolchain import HIP_HEADERS, MADE, WheelToolchain, find_ck_tile_toolchain
from harness.build.toolchain import zig_folder

HERE = Path(__file__).parent
SHIM = HERE.parent.parent / "shims" / "hip_with_libraries.c"


def zig(*command: str, folder: Path) -> None:
    wheel = zig_folder()
    assert wheel is not None, "the ziglang wheel is a dependency"
    subprocess.run([str(wheel / "zig"), *command], check=True, cwd=folder, capture_output=True)


def double_api() -> CkTileApi:
    return detect(find_headers(HERE))


def hip_folder(folder: Path) -> Path:
    """HIP's headers as the double has them, where a toolchain looks; with an empty device library."""
    made = folder / "hip"
    made.mkdir()
    for name in ("include", "wrap"):
        (made / name).symlink_to(HERE / "hip" / name)
    (made / "empty.c").write_text("")
    target = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-nogpulib")
    zig("clang", *target, "-emit-llvm", "-c", "empty.c", "-o", "ockl.bc", folder=made)
    (made / MADE).write_text("a double\n")
    return made


def toolchain(api: CkTileApi, made: Path) -> WheelToolchain:
    found = find_ck_tile_toolchain("ziglang", "gfx950", api.headers, {HIP_HEADERS: str(made)})
    assert isinstance(found, WheelToolchain)
    return found


def double_builder(folder: Path) -> Builder:
    api = double_api()
    return Builder(
        "gfx950",
        toolchain=toolchain(api, hip_folder(folder)),
        build_dir=folder / "cache",
        jobs=1,
        runs_here=False,
        ck_tile=api,
    )


def hip_double(folder: Path) -> Path:
    """libamdhip64 that records, with what libraries of kernels call."""
    library = folder / "libamdhip64.so"
    flags = ("-std=gnu2x", "-O1", "-fPIC", "-ffreestanding", "-fvisibility=hidden")
    zig("clang", "-x", "c", *flags, "-c", str(SHIM), "-o", f"{library}.o", folder=folder)
    zig("ld.lld", "-shared", f"{library}.o", "-o", str(library), folder=folder)
    return library
