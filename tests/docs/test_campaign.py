"""docs/campaign.md, from prebuilt kernels to a gate that replays: every command, and a kill."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.test_docs import commands
from tests.processes import run_python
from tests.pytest_project import Finished, Project, twice
from tests.warm_python import run_warm
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.record.dataset import load_records

PAGE = Path(__file__).parents[2] / "docs" / "campaign.md"


def problems(sizes: range) -> tuple[str, ...]:
    made = [
        GroupedConvProblem("forward", "fp32", 2, 1, 8 * (1 + n % 3), 8, 1, 4 + n, 5, 3, 3, pad_h=1, pad_w=1)
        for n in sizes
    ]
    return tuple(problem.id for problem in made)


def run(project: Project, line: str) -> Finished:
    words = shlex.split(line)
    if tool := words[:2] == ["python", "-m"]:
        module, *words = words[2:]
    else:
        module, *words = {"pytest": "pytest", "tile-oracle": "tile_oracle.cli"}[words[0]], *words[1:]
    quick = ["--kernel-budget=1ms"] if "--target cpu" in line else []
    if not tool:
        done = run_warm(module, [*words, *quick], cwd=project.folder, env=project.environment, timeout_s=300)
        return Finished(done.returncode, done.stdout + done.stderr)
    done = run_python(
        "-m",
        module,
        *words,
        cwd=project.folder,
        env=project.environment | {"PYTHONPATH": str(PAGE.parents[1])},
    )
    return Finished(done.returncode, done.stdout + done.stderr)


def killed_on_the_way(project: Project, line: str) -> int:
    """Starts a sweep, kills pytest and its workers after some pairs, and returns how many were reported."""
    words = [*shlex.split(line)[1:], "-v", "--kernel-budget=1ms"]
    process = project.start(*words)
    assert process.stdout is not None
    seen = 0
    while seen < 5 and (shown := process.stdout.readline()):
        seen += "PASSED" in shown
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    return seen


@pytest.fixture(scope="module")
def campaign(make_project: Callable[[], Project]) -> Project:
    project = make_project()
    project.problem_set("training.csv", problems(range(9)))
    project.problem_set("validation.csv", problems(range(20, 24)))
    project.problem_set("further.csv", problems(range(30, 33)))
    return project


@pytest.mark.slow
def test_the_commands_of_the_page_from_end_to_end(campaign: Project) -> None:
    outputs = {}
    for line in commands(PAGE, "campaign"):
        if "--run-name=training" in line and "--budget" not in line:
            assert killed_on_the_way(campaign, line) == 5
        done = run(campaign, line)
        assert done.status == 0, f"{line}\n{done.output}"
        outputs[line] = done.output
    records = load_records([campaign.folder / "measured.parquet"])
    sweep = records[records["round"] == 0]
    counts = sweep.groupby("run")["problem"].count()
    assert counts.to_dict() == {"training": 72, "validation": 32, "further": 6, "picks": 9}
    assert twice(records.assign(problem=records["run"] + records["problem"])).empty
    for name, file in (("further", "next.csv"), ("picks", "picks.csv")):
        suggested, measured = pd.read_csv(campaign.folder / file), sweep[sweep["run"] == name]
        assert set(zip(measured["problem"], measured["kernel"], strict=True)) == set(
            zip(suggested["problem"], suggested["kernel"], strict=True)
        )
    replayed = next(output for line, output in outputs.items() if "--target replay" in line)
    assert "4 problems, 32 pairs replayed" in replayed
    assert "verdict passed: every criterion is met" in replayed
    page = (campaign.folder / "results.md").read_text()
    assert "| `second` | " in page


@pytest.mark.slow
def test_problems_that_are_judged_are_not_trained_on(campaign: Project) -> None:
    line = "tile-oracle model train measured.parquet --problem-set validation.csv,training.csv -o models/none"
    assert run(campaign, line).status == 2
    both = run(
        campaign, "tile-oracle model train reports/validation --problem-set validation.csv -o models/none"
    )
    assert both.status == 2
    assert "all records are of problems of validation, which are held out" in both.output
    assert not (campaign.folder / "models" / "none").exists()
