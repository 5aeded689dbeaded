"""SIGTERM, SIGHUP, Ctrl-C twice and SIGSTOP: the session ends normally, and measurements are kept."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

import pytest

from tests.processes import has_ended, wait_until
from tests.pytest_project import PROBLEMS, QUICK, Project, children, end_of, twice

SWEEP = (
    *("--problem-set", "four.csv", "--kernel-set", "tiny", "--kernel-budget", "5ms", "--model", "none", "-v"),
)
PAIRS = 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGTERM, ()), (signal.SIGTERM, ("-n2",)), (signal.SIGHUP, ())]
)
def test_a_signal_seals_the_journals_and_prints_how_to_resume(
    number: signal.Signals, workers: tuple[str, ...], project: Project
) -> None:
    project.problem_set("four.csv", PROBLEMS)
    process, begin = project.start_held(5, *SWEEP, *workers)
    below = [*children(process.pid)]
    below += [one for pid in below for one in children(pid)]
    process.send_signal(number)
    finished = end_of(process, begin)
    assert finished.status == 2, finished.output[-3000:]
    (run,) = project.runs
    assert f"stopped by {number.name}: what was measured is in {run}" in finished.output
    assert "--resume" in finished.output
    assert "Traceback" not in finished.output
    assert below
    wait_until(lambda: all(map(has_ended, below)))
    assert not list(run.glob("measurements/.*"))
    rows = len(project.records(run))
    assert rows >= 5
    if number != signal.SIGTERM:
        return  # the end was the same: so is what follows
    resumed = project.pytest(*SWEEP, "--resume")
    assert resumed.status == 0, resumed.output[-3000:]
    records = project.records()
    assert len(records[records["round"] == 0]) == PAIRS
    assert twice(records).empty


@pytest.mark.slow
def test_ctrl_c_twice_ends_the_session_and_keeps_what_was_measured(project: Project) -> None:
    project.problem_set("four.csv", PROBLEMS)
    process, begin = project.start_held(5, *SWEEP)
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGINT)
    finished = end_of(process, begin)
    # If the second arrives while pytest handles the first, the signal ends Python.
    assert finished.status in (2, -signal.SIGINT), finished.output[-3000:]
    assert "INTERNALERROR" not in finished.output
    resumed = project.pytest(*SWEEP, "--resume")
    assert resumed.status == 0, resumed.output[-3000:]
    assert resumed.output.count("resumed") >= 1
    records = project.records()
    assert len(records[records["round"] == 0]) == PAIRS
    assert twice(records).empty


# Killed processes of devices (-n) and workers of pytest-xdist: every pair is measured once.


def kill_newest(process: subprocess.Popen[str], kind: str) -> None:
    """Kill the newest of the children with `kind` in their command line."""
    os.kill(max(pid for pid, command in children(process.pid).items() if kind in command), signal.SIGKILL)


@pytest.mark.slow
def test_another_device_measures_what_a_killed_one_had(project: Project) -> None:
    project.problem_set("four.csv", PROBLEMS)
    process, begin = project.start_held(1, "--problem-set", "four.csv", *QUICK, "-n2", "-v")
    kill_newest(process, "device_process")
    project.let_go()
    done = end_of(process, begin)
    assert done.status == 0, done.output
    records = project.records()
    assert len(records[records["round"] == 0]) == PAIRS
    assert set(records["status"]) <= {"ok", "noisy"}
    assert twice(records).empty
    assert not list(project.runs[0].glob("measurements/.*"))
    assert not list(project.runs[0].glob(".attempt-*"))
