"""Builds libraries of the double's kernels with the adapter's code, and the HIP double they run on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.processes import run_python
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.ck_tile.api import CkTileApi, detect
from tile_oracle.compiling.ck_tile.headers import find_headers
from tile_oracle.compiling.ck_tile.kernel_source import CkTileSource
from tile_oracle.compiling.ck_tile.toolchain import HIP_HEADERS, MADE, WheelToolchain, find_ck_tile_toolchain
from tile_oracle.compiling.toolchain import zig_folder

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
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
    if made.is_dir():
        return made
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
        source=CkTileSource("gfx950", api),
    )


def hip_double(folder: Path) -> Path:
    """libamdhip64 that records, with what libraries of kernels call."""
    library = folder / "libamdhip64.so"
    flags = ("-std=gnu2x", "-O1", "-fPIC", "-ffreestanding", "-fvisibility=hidden")
    zig("clang", "-x", "c", *flags, "-c", str(SHIM), "-o", f"{library}.o", folder=folder)
    zig("ld.lld", "-shared", f"{library}.o", "-o", str(library), folder=folder)
    return library


SCRIPT = """
import json, sys
from pathlib import Path
from tile_oracle.problem import problem_from_row
from tile_oracle.device.gpu import GpuDevice
from tile_oracle.device.runtime.hip import open_hip

asked = json.loads(sys.argv[1])
driver = open_hip(library=asked["runtime"])
device = GpuDevice(driver, Path(asked["work"]), 256)
answers = []
for library, row in asked["runs"]:
    device.load(problem_from_row(row), 1)
    check = device.check(Path(library))
    timed = len(device.sample(Path(library), 10)) if check.status == "ok" else 0
    sets = device._loaded.sets
    answers.append([check.status, check.detail, timed, [one.out.address for one in sets],
                    [buffer.address for buffer in sets[0].inputs], driver.stream])
print(json.dumps(answers))
"""


def run_on_double(
    runtime: Path, folder: Path, runs: list[tuple[Path, dict[str, Any]]], **environment: str
) -> tuple[list[list[Any]], list[list[str]]]:
    """The device's result of each run, and every launch with its name and arguments."""
    record, work = folder / "record.txt", folder / "work.bin"
    record.unlink(missing_ok=True)
    work.write_bytes(b"work")
    asked = {"runtime": str(runtime), "work": str(work), "runs": [(str(path), row) for path, row in runs]}
    done = run_python(
        "-c",
        SCRIPT,
        json.dumps(asked),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RECORD_TO": str(record), **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in record.read_text().splitlines()]
    return json.loads(done.stdout), lines
