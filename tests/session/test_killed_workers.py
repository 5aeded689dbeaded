"""Killed processes of devices (-n) and workers of pytest-xdist: every pair is measured once."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.pytest_project import PROBLEMS, QUICK, Finished, Project, children, twice

PAIRS = 32
"""Four problems and the eight kernels of the set tiny."""


def kill_after(process: subprocess.Popen[str], tests: int, kind: str) -> str:
    """Kills one of the children with `kind` in their command line, once so many tests are reported; returns
    the output until then."""
    assert process.stdout is not None
    seen, finished = [], 0
    while finished < tests and (line := process.stdout.readline()):
        seen.append(line)
        finished += bool(re.search(r"\b(PASSED|SKIPPED|XFAIL)\b", line))
    assert finished == tests, "".join(seen)
    os.kill(max(pid for pid, command in children(process.pid).items() if kind in command), signal.SIGKILL)
    return "".join(seen)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 20])
def test_another_device_measures_what_a_killed_one_had(after: int, project: Project) -> None:
    project.problem_set("four.csv", PROBLEMS)
    process = project.start("--problem-set", "four.csv", *QUICK, "-n2", "-v")
    begin = kill_after(process, after, "device_process")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, begin + output
    records = project.records()
    assert len(records[records["round"] == 0]) == PAIRS
    assert set(records["status"]) <= {"ok", "noisy"}
    assert twice(records).empty
    assert not list(project.runs[0].glob("measurements/.*"))
    assert not list(project.runs[0].glob(".attempt-*"))


@pytest.mark.slow
def test_a_killed_worker_of_pytest_xdist_loses_no_measurement(project: Project) -> None:
    """Beside a project's own tests, all tests run in its workers."""
    project.write("test_own.py", "def test_own():\n    pass\n")
    process = project.start("test_own.py", "--problem-set", "small.csv", *QUICK, "-n2", "-v")
    begin = kill_after(process, 4, "sys.stdin.readline")
    output, _ = process.communicate(timeout=120)
    finished = Finished(process.returncode, begin + output)
    assert "INTERNALERROR" not in finished.output
    # A worker killed between two tests, or after its last, fails no test.
    crashed = len(re.findall("^worker .* crashed while", output, re.MULTILINE))
    assert finished.counts().get("failed", 0) == crashed <= 1
    records = project.records()
    assert len(records[records["round"] == 0]) == finished.counts()["passed"] + crashed - 1
    assert twice(records).empty
