"""Killed processes of devices (-n) and workers of pytest-xdist: every pair is measured once."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.pytest_project import PROBLEMS, QUICK, Project, children, end_of, twice

PAIRS = 32
"""Four problems and the eight kernels of the set tiny."""


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
