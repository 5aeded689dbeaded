"""Computes the implicit GEMM of a launch on the host with CK Tile's index arithmetic (implicit_gemm.hpp)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tile_oracle.compiling.ck_tile.api import CkTileApi
from tile_oracle.compiling.ck_tile.kernel_source import source_for
from tile_oracle.compiling.ck_tile.toolchain import WheelToolchain
from tile_oracle.compiling.isa import isa_for
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem

HERE = Path(__file__).parent
_EMBED = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", "kernel.hipfb")

_SCRIPT = """
import ctypes, json, sys
from pathlib import Path
import numpy as np
from tile_oracle.device.reference import exact_output
from tile_oracle.problem import problem_from_row
from tile_oracle.device.ck_tile_library import ck_problem

asked = json.loads(sys.argv[1])
ctypes.CDLL(asked["runtime"], mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(asked["library"])
answers = []
for row in asked["problems"]:
    problem = problem_from_row(row)
    first, second, result = problem.operand_shapes
    numbers = np.random.default_rng(1)
    in0, in1 = (numbers.integers(-4, 5, shape).astype(np.int32) for shape in (first, second))
    out, workspace = (np.full(result, 1 << 30, np.int32) for _ in range(2))
    given = ck_problem(problem, *(array.ctypes.data for array in (in0, in1, out, workspace)))
    if library.carry_out_implicit_gemm(ctypes.byref(given)):
        answers.append("refused")
        continue
    expected = exact_output(problem, in0.astype(np.int8), in1.astype(np.int8))
    sums, other = (workspace, out) if asked["two_stage"] else (out, workspace)
    assert (other == 1 << 30).all()
    wrong = int((sums != expected).sum())
    answers.append("right" if not wrong else f"{wrong} of {out.size} wrong")
print(json.dumps(answers))
"""


def build_host_part(api: CkTileApi, toolchain: WheelToolchain, kernel: Kernel, folder: Path) -> Path:
    """The host part of a kernel's library, with `carry_out_implicit_gemm`; no device code."""
    folder.mkdir()
    text = source_for(api, kernel) + '#include "implicit_gemm.hpp"\n'
    (folder / "kernel.hip").write_text(text)
    (folder / "include").mkdir()
    for header in (*(data_folder("kernels") / "ck_tile").iterdir(), HERE / "implicit_gemm.hpp"):
        (folder / "include" / header.name).symlink_to(header)
    toolchain.prepare(folder)
    library = folder / "host.so"
    flags = (*toolchain.flags("gfx950", isa_for("gfx950", "native")), "-O1")
    *_, compile_, link = toolchain.commands("kernel.hip", str(library), flags)
    at = compile_.index("-fcuda-include-gpubinary") - 1
    assert compile_[at : at + len(_EMBED)] == _EMBED
    without_device_code = (*compile_[:at], *compile_[at + len(_EMBED) :])
    for command in (without_device_code, (*link, "-Wl,--defsym=__hip_fatbin=0")):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    return library


def carried_out(
    library: Path, runtime: Path, folder: Path, problems: Sequence[Problem], two_stage: bool
) -> list[str]:
    """For each problem "right", "refused", or how many values of the result are wrong.

    two_stage: the sums are in the workspace, and the second kernel is not executed.
    """
    rows: list[dict[str, Any]] = [{"op": "grouped_conv", **problem.as_row()} for problem in problems]
    asked = {"library": str(library), "runtime": str(runtime), "problems": rows, "two_stage": two_stage}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(asked)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1]),
            "RECORD_TO": str(folder / "implicit_gemm.txt"),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[str] = json.loads(done.stdout)
    return answers
