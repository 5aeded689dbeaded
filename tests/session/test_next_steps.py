"""Every command that a session or its page proposes works where it is printed."""

from __future__ import annotations

import html
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import run_python
from tests.pytest_project import PROBLEMS, SHORTLY, TWO_KERNELS, Finished, Project, end_of
from tests.session.recorded import SET, Recorded
from tile_oracle.judge.baseline import load_baseline, save_baseline
from tile_oracle.session.outcome import Outcome

REPLAY = ("--problem-set", SET, "--target", "replay")
MEASURED = ("--problem-set", "four.csv", *TWO_KERNELS, "--model=out-of-fold", *SHORTLY)
ANYWAY = "exit with status 0 anyway"


def proposed(done: Finished, run: Path) -> dict[str, str]:
    """What for -> command, of the terminal's last lines and of the run's page."""
    lines = done.lines
    said = {
        lines[at - 1].strip(" :"): line.strip()
        for at, line in enumerate(lines)
        if re.match(r"    (pytest|tile-oracle) ", line)
    }
    page = (run / "report.html").read_text(encoding="utf-8")
    for why, command in re.findall(r'<p>To ([^<]+):</p>\n<div class="command"><code>([^<]+)<', page):
        said[html.unescape(why)] = html.unescape(command)
    return said


def status_of(project: Project, command: str) -> tuple[int, str]:
    program, *arguments = shlex.split(command)
    if program == "pytest":
        done = project.pytest(*arguments)
        return done.status, done.output
    assert program == "tile-oracle"
    ended = run_python("-m", "tile_oracle.cli", *arguments, cwd=project.folder)
    return ended.returncode, ended.stdout + ended.stderr


def newest(project: Project) -> Path:
    return max(project.runs, key=lambda run: run.stat().st_mtime)


def try_all(project: Project, done: Finished, *, expected: set[str]) -> dict[str, str]:
    """Runs every proposal, those that change what is accepted last."""
    found = proposed(done, newest(project))
    assert set(found) == expected, done.output
    for why, command in sorted(found.items(), key=lambda one: "--update-baseline" in one[1]):
        status, output = status_of(project, command)
        assert "Traceback" not in output
        if why == ANYWAY or "accept" in why:
            assert status == 0, (command, output)
        assert status not in (2, 3, 4, 5), (command, output)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--run-name=named",)])
def test_a_replay_on_any_machine(recorded: Recorded, more: tuple[str, ...]) -> None:
    """No device is here: nothing is tuned; everything is recorded: nothing is suggested."""
    done = recorded.project.pytest(*REPLAY, f"--baseline-dir=empty{len(more)}", *more)
    assert done.status == Outcome.NO_BASELINE == 10
    assert "no baseline: there is none for this model, device and kernel" in " ".join(done.output.split())
    assert "exit status 10: no baseline" in done.output
    found = try_all(recorded.project, done, expected={"accept these picks as the baseline", ANYWAY})
    assert found[ANYWAY].endswith(" --allow=no-baseline")


@pytest.mark.slow
def test_a_replay_that_fails(recorded: Recorded) -> None:
    project = recorded.project
    assert project.pytest(*REPLAY, "--update-baseline").status == 0
    accepted = load_baseline(recorded.oracle.with_suffix(".json"))
    better = replace(accepted, efficiencies=dict.fromkeys(accepted.efficiencies, 1.0))
    path = (
        project.folder
        / "strict"
        / recorded.oracle.with_suffix(".json").relative_to(project.folder / "models")
    )
    save_baseline(better, path)
    done = project.pytest(*REPLAY, "--baseline-dir=strict", "--mean-tolerance=0")
    assert done.status == 1
    try_all(
        project,
        done,
        expected={
            "see which picks became slower, and which changed",
            "accept the loss as the new baseline, if it is intended",
        },
    )


@pytest.mark.slow
def test_a_measured_run(project: Project) -> None:
    project.problem_set("four.csv", PROBLEMS)
    done = project.pytest(*MEASURED)
    assert done.status == Outcome.NO_BASELINE
    found = proposed(done, newest(project))
    assert {"accept these picks as the baseline", ANYWAY} <= set(found)
    rows = len(project.records())
    try_all(project, done, expected=set(found))
    assert len(project.records()) == rows, "what is accepted is not measured again"


@pytest.mark.slow
def test_ctrl_c_goes_on_and_accepts_nothing(project: Project) -> None:
    project.problem_set("four.csv", PROBLEMS)
    process, begin = project.start_held(1, *MEASURED, "-v")
    process.send_signal(signal.SIGINT)
    done = end_of(process, begin)
    assert done.status == 2, done.output
    assert "--update-baseline" not in done.output
    (rest,) = {line.strip() for line in done.lines if line.strip().startswith("pytest ")}
    assert "--resume" in rest
    assert status_of(project, rest)[0] in (0, 10)
