"""docs/first_day.md on an emulated gfx950: every command, in order, with a few problems and kernels."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.test_docs import commands
from tests.kernels.emulated_gpu import machine as emulated
from tests.pytest_project import CLOCK_THAT_JUMPS, SHORTLY, Finished, Project
from tests.warm_python import run_warm
from tile_oracle.compiling.toolchain import zig_folder
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import pool_of_kind, rules_of
from tile_oracle.problem_set import load_problem_set

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first_day.md"
MODEL = "grouped_conv_bwd_data_bf16_gfx950"
_ROW = re.compile(r"^\| ([\w, ]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|$", re.MULTILINE)
KERNELS = (
    "tile_m == 16 and tile_n == 64 and tile_k == 64 and vector_a == 4 and pipeline in ('basic_v1', 'compv3') "
    "and scheduler == 'intrawave' and not double_smem_buffer"
)
ON_THE_MACHINE = f"""
import sys
sys.path.append({str(ROOT)!r})
import {emulated.PLUGIN}
if __name__ == "__main__":
    from tile_oracle.cli import main
    sys.exit(main())
"""
"""A plugin, and tile-oracle, for a process that finds the emulated GPU."""


def problems(numbers: range) -> tuple[str, ...]:
    made = [
        GroupedConvProblem("bwd_data", "bf16", 2, 1, 8 * (1 + n % 3), 8 + 8 * (n % 2), 1, 3 + n, 3, 1, 1)
        for n in numbers
    ]
    return tuple(problem.id for problem in made)


SETS = {
    "bwd_data_smoke": problems(range(1)),
    "bwd_data_training": problems(range(1, 5)),
    "bwd_data_validation_300": problems(range(10, 12)),
}


def run(project: Project, machine: emulated.EmulatedMachine, line: str) -> Finished:
    """A command of the page, with the test's problem sets and with options that shorten it."""
    program, *words = shlex.split(re.sub(rf"\b({'|'.join(SETS)})\b", r"./\1.csv", line))
    few, compiler = f"--kernel-filter={KERNELS}", f"--toolchain={machine.compiler}"
    if "--target gfx950" in line:
        words += ["-p", "on_the_machine", few, *SHORTLY]
        words += [] if "--build-dir" in line else [compiler]
        words += ["-p", "clock_that_jumps"] if "--budget 1h" in line else []
    if words[0] == "build":
        words += [few, compiler]
    # Slow memory: kernels take long by the device's clock, so that one run is a sample.
    environment = project.environment | machine.environment() | {"EMULATED_ACCESS_NS": "100"}
    module = "pytest" if program == "pytest" else "on_the_machine"
    done = run_warm(module, words, cwd=project.folder, env=environment, timeout_s=300, together=True)
    return Finished(done.returncode, done.stdout)


def test_the_hours_are_of_the_pairs_of_the_sets() -> None:
    rows = [(name, *row[1:]) for row in _ROW.findall(PAGE.read_text()) for name in row[0].split(", ")]
    assert len(rows) == 8
    for name, *cells in rows:
        problems = load_problem_set(name).problems
        pools = {
            kind: len(pool_of_kind(kind, "gfx950", rules_of("default", None)))
            for kind in {problem.kind for problem in problems}
        }
        (kernels,) = set(pools.values())
        pairs = kernels * len(problems)
        counts = (len(problems), kernels, pairs)
        assert cells == [*(f"{one:,}" for one in counts), f"{pairs / 100 / 3600:.2f}"]


@pytest.mark.slow
@pytest.mark.skipif(zig_folder() is None, reason="the emulated GPU needs the ziglang wheel")
def test_the_commands_of_the_page_from_end_to_end(
    project: Project, emulated_machine: Callable[[str], emulated.EmulatedMachine]
) -> None:
    machine = emulated_machine("gfx950")
    for name, ids in SETS.items():
        project.problem_set(f"{name}.csv", ids)
    project.write("on_the_machine.py", ON_THE_MACHINE)
    project.write("clock_that_jumps.py", CLOCK_THAT_JUMPS.replace("bool(begun)", "(len(begun) > 1)"))
    outputs = {}
    for line in commands(PAGE, "first-day"):
        done = run(project, machine, line)
        assert done.status == 0, f"{line}\n{done.output[-4000:]}"
        outputs[line] = done.output
    records = pd.read_parquet(project.folder / "training.parquet")
    sweep = records[records["round"] == 0]
    suggested = pd.read_csv(project.folder / "next.csv")
    measured = sweep.groupby("run")["problem"].count().to_dict()
    assert measured == {"training": 2 * 2, "further": len(suggested)}
    assert set(sweep["problem"]) == set(SETS["bwd_data_training"])
    for recipe in ("physical", "launch"):
        assert list((project.folder / "trials" / recipe).glob("cv_metrics_*.json"))
    manifest = json.loads((project.folder / "models" / MODEL / "train_manifest.json").read_text())
    assert set(manifest["problems"]) == set(SETS["bwd_data_training"])
    replayed = next(output for line, output in outputs.items() if "--target replay" in line)
    assert "verdict passed: every criterion is met" in replayed
    gated = next(output for line, output in outputs.items() if "--run-name=gate" in line)
    assert "verdict passed: every criterion is met" in gated
    (kept,) = (project.folder / "nights" / "kept" / "baselines").rglob("*.json")
    assert set(json.loads(kept.read_text())["efficiencies"]) == set(SETS["bwd_data_validation_300"])
