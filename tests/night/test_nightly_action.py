"""The steps of the nightly action, run as by a runner on the target cpu, night after night."""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.night.action_steps import defaults_of, filled, steps_of
from tests.pytest_project import CLOCK_THAT_JUMPS, KERNELS, PROBLEMS, TWO_KERNELS, Project
from tile_oracle.night.nights import NightState, Unfinished
from tile_oracle.operation import operation_named
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import load_records

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github" / "actions" / "gate" / "action.yml"
PAIRS = 2 * len(PROBLEMS)

POWER_CUT = """\
import os, signal

def pytest_runtest_logfinish(nodeid):
    os.killpg(0, signal.SIGKILL)
"""
"""A plugin that kills the whole step after the first pair."""

OUT_OF_MEMORY = POWER_CUT.replace("os.killpg(0,", "os.kill(os.getpid(),")
"""A plugin that kills only pytest after the first pair."""

TIMES_DO_NOT_COUNT = [f"--{name}-tolerance=100" for name in ("mean", "median", "p10", "problem")]
"""The machine is shared, so only failing kernels fail a night here."""


@dataclass
class Night:
    """A job that has ended. statuses: step -> exit status, of those that ran."""

    statuses: dict[str, int]
    output: str
    summary: str

    @property
    def green(self) -> bool:
        return not any(self.statuses.values())


class Runner:
    """A self-hosted runner with a checkout, which is cleaned before each job, and a remote repository."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.home = project.folder / "home"
        self.remote = project.folder / "server" / "owner" / "kernels"
        self.workspace = project.folder / "workspace"
        self.home.mkdir()
        self.git("init", "--quiet", "--bare", str(self.remote), cwd=project.folder)
        self.git("clone", "--quiet", str(self.remote), str(self.workspace), cwd=project.folder)
        project.problem_set("set.csv", PROBLEMS)
        project.write("power_cut.py", POWER_CUT)
        project.write("out_of_memory.py", OUT_OF_MEMORY)
        project.write("clock_that_jumps.py", CLOCK_THAT_JUMPS)

    def git(self, *words: str, cwd: Path) -> str:
        done = subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, text=True)
        return done.stdout

    def night(self, *options: str, **inputs: str) -> Night:
        """One job. A killed step is the end of the runner: nothing runs after it."""
        self.git("clean", "-ffdx", cwd=self.workspace)
        summary = self.project.folder / "summary.md"
        summary.unlink(missing_ok=True)
        given = {
            "target": "cpu",
            "problem-set": str(self.project.folder / "set.csv"),
            "series": "layers",
            "python": sys.executable,
            "budget": "1h",
            "options": "\n".join([*_joined(TWO_KERNELS), *TIMES_DO_NOT_COUNT, *options]),
        }
        values = {**defaults_of(ACTION), **given, "token": ""}
        values |= {name.replace("_", "-"): value for name, value in inputs.items()}
        environment = self.project.environment | {
            "HOME": str(self.home),
            "PYTHONPATH": str(self.project.folder),
            "GITHUB_ACTION_PATH": str(ACTION.parent),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_SERVER_URL": f"file://{self.remote.parents[1]}",
            "GITHUB_REPOSITORY": "owner/kernels",
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(self.project.folder / "outputs"),
        }
        statuses: dict[str, int] = {}
        output = ""
        for step in steps_of(ACTION):
            if any(statuses.values()) and step.condition != "always()":
                continue
            own = {name: filled(value, values) for name, value in step.environment.items()}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", filled(step.script, values)],
                cwd=self.workspace,
                env=environment | own,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                timeout=300,
                check=False,
            )
            statuses[step.name] = done.returncode
            output += done.stdout
            if done.returncode < 0:
                break
        return Night(statuses, output, summary.read_text() if summary.exists() else "")

    def kept(self, name: str) -> str:
        """A file of the branch."""
        return self.git("show", f"tile-oracle-nights:layers/{name}", cwd=self.remote)

    def history(self) -> list[dict[str, str]]:
        return list(csv.DictReader(self.kept("history.csv").splitlines()))

    @property
    def runs(self) -> list[Path]:
        nights = self.home / "tile-oracle-nights" / "owner" / "kernels" / "layers" / "nights"
        return sorted(path.parent for path in nights.glob("*/*/run.json"))


def _joined(words: tuple[str, ...]) -> list[str]:
    """One option per line: `--samples 5` as `--samples=5`; --model is the default here."""
    pairs = list(zip(words[::2], words[1::2], strict=True))
    return [f"{option}={value}" for option, value in pairs if option != "--model"]


@pytest.fixture
def runner(project: Project) -> Runner:
    return Runner(project)


@pytest.mark.slow
def test_nights_in_a_row(runner: Runner) -> None:
    first = runner.night()
    assert first.statuses == {"install": 0, "fetch": 0, "measure": 10, "save": 0}, first.output
    assert "no baseline" in first.summary
    assert not first.green

    accepted = runner.night(update_baseline="true")
    assert accepted.green, accepted.output
    assert "baselines/" in runner.git("ls-tree", "-r", "--name-only", "tile-oracle-nights", cwd=runner.remote)

    short = runner.night("-pclock_that_jumps")
    assert short.statuses == {"install": 0, "fetch": 0, "measure": 12, "save": 0}, short.output
    assert "It is not complete." in short.summary

    killed = runner.night("-ppower_cut", unfinished="anew")
    assert killed.statuses["measure"] == -signal.SIGKILL
    assert "save" not in killed.statuses
    assert len(runner.runs) == 4
    measured = len(load_records(runner.runs[-1]))
    assert 0 < measured < PAIRS

    resumed = runner.night()
    assert resumed.green, resumed.output
    assert "verdict passed" in resumed.output
    assert "(resumed)" in resumed.output
    assert "The last nights" in resumed.summary
    assert len(runner.runs) == 4
    assert len(load_records(runner.runs[-1]).drop_duplicates(["problem", "kernel"])) == PAIRS

    bad = runner.project.compiler("clang++", {"TO_PACK_AB": "wrong"})
    regressed = runner.night(f"--toolchain={bad}")
    assert regressed.statuses["measure"] == 1, regressed.output
    assert regressed.statuses["save"] == 0
    assert "new failures" in regressed.summary
    assert len(runner.runs) == 5

    rows = runner.history()
    assert [row["outcome"] for row in rows] == [
        "no baseline",
        "passed",
        "incomplete",
        "killed: it did not end by itself",
        "passed",
        "failed",
    ]
    assert [row["status"] for row in rows] == ["10", "0", "12", "", "0", "1"]
    assert {row["problems"] for row in rows} == {"4", ""}


@pytest.mark.slow
def test_a_night_of_two_pickers_says_what_one_changes_against_the_other(runner: Runner) -> None:
    """The paragraph that a pull request gets: faster and slower problems, intervals, regret."""
    picks = runner.project.folder / "picks.csv"
    problems = load_problem_set(str(runner.project.folder / "set.csv")).problems
    names = operation_named("grouped_conv").free_fields
    rows = [[str(getattr(one, name)) for name in names] for one in problems]
    kernel = f"grouped_conv_forward_fp32_2d_{KERNELS[1]}"
    lines = [[*names, "kernel_name", "predicted_tflops"], *([*row, kernel, "1"] for row in rows)]
    picks.write_text("".join(",".join(line) + "\n" for line in lines))
    night = runner.night(f"--models=single,{picks}", update_baseline="true")
    assert night.green, night.output
    assert re.search(r"^\| picks: picks.csv sha256:[0-9a-f]+ \| [\d.]+ % \|", night.summary, re.MULTILINE)
    said = re.search(r"\*\*single\*\* against \*\*picks\*\* on the same measurements of 4 .*", night.summary)
    assert said, night.summary
    assert re.search(r"faster on \d, slower on \d \(5 % false .*, the same on \d, \d cannot be told", said[0])
    assert re.search(r"Efficiency: mean [+-][\d.]+ \[[-+\d.]+, [-+\d.]+\], P10 .* \(95 % intervals", said[0])
    assert "Regret, the time above the oracles'" in said[0]


@pytest.mark.slow
def test_a_killed_night_is_reported_once(runner: Runner) -> None:
    night = runner.night("-pout_of_memory")
    assert night.statuses == {"install": 0, "fetch": 0, "measure": 128 + signal.SIGKILL, "save": 0}
    assert "It is not complete." in night.summary
    runner.night(target="replay")
    assert [row["outcome"] for row in runner.history()] == ["killed by SIGKILL"]
    state = NightState(runner.runs[0].parents[2], runner.home)
    assert state.unfinished() == Unfinished(runner.runs[0].parent.name, ended=True)


NO_GPU = pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has a GPU of AMD's")


@pytest.mark.slow
@NO_GPU
def test_a_night_without_its_gpu_fails(runner: Runner) -> None:
    night = runner.night(target="gfx950")
    assert night.statuses == {"install": 0, "fetch": 0, "measure": 15, "save": 0}
    assert "device missing (exit status 15)" in night.summary
    assert runner.history()[0]["outcome"] == "device missing"
    assert not runner.runs


@pytest.mark.slow
def test_inputs_are_options_of_the_session(runner: Runner) -> None:
    night = runner.night(
        ck_tile="/none", kernel_set="profiler", model="mine", allow="incomplete", series=".."
    )
    for option in ("--ck-tile=/none", "--kernel-set=profiler", "--model=mine", "--allow=incomplete"):
        assert option in night.output
    assert night.statuses["measure"] == 4
    assert "usage error (exit status 4)" in night.summary
    assert (runner.home / "tile-oracle-nights" / "owner" / "kernels" / "_.." / "nights").is_dir()


@pytest.mark.slow
def test_an_unreadable_branch_is_not_a_first_night(runner: Runner) -> None:
    runner.remote.rename(runner.remote.with_name("moved"))
    night = runner.night()
    assert night.statuses["fetch"] != 0
    assert "measure" not in night.statuses


@pytest.mark.slow
@NO_GPU
def test_the_next_night_pushes_what_could_not_be_pushed(runner: Runner) -> None:
    hook = runner.remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    options = {"target": "gfx950"}
    assert runner.night(**options).statuses["save"] == 1
    hook.unlink()
    assert runner.night(**options).statuses["save"] == 0
    assert len(runner.history()) == 2
