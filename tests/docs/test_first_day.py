"""docs/first_day.md on an emulated gfx950: every command, in order, with a few problems and kernels."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.kernels.emulated_gpu import machine as emulated
from tests.pytest_project import SHORTLY, Finished, Project
from tile_oracle.build.toolchain import zig_folder
from tile_oracle.operation.grouped_conv.problem import GroupedConvProblem

PAGE = Path(__file__).parents[2] / "docs" / "first_day.md"
MODEL = "grouped_conv_bwd_data_bf16_gfx950"
_FENCE = re.compile(r"^```first-day\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KERNELS = (
    "tile_m in (16, 64) and tile_n == 64 and tile_k == 64 and scheduler == 'intrawave' and vector_a == 4 "
    "and pipeline in ('basic_v1', 'compv3') and not double_smem_buffer"
)


def problems(numbers: range) -> tuple[str, ...]:
    made = [
        GroupedConvProblem("bwd_data", "bf16", 2, 1, 8 * (1 + n % 3), 8 + 8 * (n % 2), 1, 3 + n, 3, 1, 1)
        for n in numbers
    ]
    return tuple(problem.id for problem in made)


SETS = {
    "bwd_data_smoke": problems(range(1)),
    "bwd_data_training": problems(range(1, 6)),
    "bwd_data_validation_300": problems(range(10, 13)),
}


def commands() -> list[str]:
    return [line for body in _FENCE.findall(PAGE.read_text()) for line in body.splitlines() if line]


def run(project: Project, machine: emulated.EmulatedMachine, line: str) -> Finished:
    """A command of the page; exchanged are the names of problem sets, added what makes it short."""
    program, *words = shlex.split(re.sub(rf"\b({'|'.join(SETS)})\b", r"./\1.csv", line))
    environment = machine.environment()
    if program == "pytest":
        more = ["-p", emulated.PLUGIN, f"--kernel-filter={KERNELS}", *SHORTLY]
        more += [] if "--build-dir" in line else [f"--toolchain={machine.compiler}"]
        return project.pytest(*words, *more, environment=environment)
    if words[0] == "build":
        words.remove("--verify")  # the emulated GPU runs code of the host: tests/verify reads gfx950's
        words += [f"--toolchain={machine.compiler}", f"--kernel-filter={KERNELS}"]
    done = subprocess.run(
        [sys.executable, "-m", "tile_oracle.cli", *words],
        cwd=project.folder,
        env=project.environment | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return Finished(done.returncode, done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(zig_folder() is None, reason="the emulated GPU needs the ziglang wheel")
def test_the_commands_of_the_page_from_end_to_end(
    project: Project, emulated_machine: Callable[[str], emulated.EmulatedMachine]
) -> None:
    machine = emulated_machine("gfx950")
    for name, ids in SETS.items():
        project.problem_set(f"{name}.csv", ids)
    outputs = {}
    for line in commands():
        done = run(project, machine, line)
        assert done.status == 0, f"{line}\n{done.output[-4000:]}"
        outputs[line] = done.output
    records = pd.read_parquet(project.folder / "measured.parquet")
    sweep = records[records["round"] == 0]
    kernels = sweep["kernel"].nunique()
    assert kernels >= 3
    assert sweep.groupby("run")["problem"].count().to_dict() == {
        "training": kernels * len(SETS["bwd_data_training"]),
        "validation": kernels * len(SETS["bwd_data_validation_300"]),
    }
    manifest = json.loads((project.folder / "models" / MODEL / "train_manifest.json").read_text())
    assert set(manifest["problems"]) == set(SETS["bwd_data_training"])
    replayed = next(output for line, output in outputs.items() if "--target replay" in line)
    assert "verdict passed: every criterion is met" in replayed
    gated = next(output for line, output in outputs.items() if "--run-name=gate" in line)
    assert "verdict passed: every criterion is met" in gated
