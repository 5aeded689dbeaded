"""Workers of pytest-xdist that are killed: the session ends, and every pair is measured once."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.pytest_project import PROBLEMS, QUICK, Finished, Project, children, twice

PAIRS = 32
"""Four problems and the eight kernels of the set tiny."""


def worker_pids(process: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, command in children(process.pid).items() if "sys.stdin.readline" in command]


def kill_a_worker_after(process: subprocess.Popen[str], tests: int) -> str:
    """Kills the worker that reports the test with this number; returns the output until then."""
    assert process.stdout is not None
    seen, finished = [], 0
    while finished < tests and (line := process.stdout.readline()):
        seen.append(line)
        finished += bool(re.search(r"^\[gw\d\].* (PASSED|SKIPPED|XFAIL) ", line))
    assert finished == tests, "".join(seen)
    os.kill(max(worker_pids(process)), signal.SIGKILL)
    return "".join(seen)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "after"), [(1, 29), (2, 31)])
def test_a_session_ends_although_a_worker_was_killed(workers: int, after: int, project: Project) -> None:
    project.problem_set("four.csv", PROBLEMS)
    process = project.start("--problem-set", "four.csv", *QUICK, f"-n{workers}", "-v")
    begin = kill_a_worker_after(process, after)
    output, _ = process.communicate(timeout=120)
    finished = Finished(process.returncode, begin + output)
    assert "INTERNALERROR" not in finished.output
    assert "node down: Not properly terminated" in finished.output
    # A worker killed between two tests, or after its last, fails no test.
    assert (
        finished.counts().get("failed", 0) == len(re.findall("^worker .* crashed while", output, re.M)) <= 1
    )
    records = project.records()
    # The pair of the failed test may be unmeasured: resuming measures it.
    measured = len(records[records["round"] == 0])
    assert PAIRS - finished.counts().get("failed", 0) <= measured <= PAIRS
    assert twice(records).empty
    assert not list(project.runs[0].glob("measurements/.*"))
    # A note of an unmeasured pair stays for the session that resumes the run.
    assert len(list(project.runs[0].glob(".attempt-*"))) <= PAIRS - measured


@pytest.mark.slow
def test_a_session_without_replacement_workers_fails_and_counts_the_tests_left(project: Project) -> None:
    process = project.start("--problem-set", "small.csv", *QUICK, "-n1", "-v", "--max-worker-restart=0")
    begin = kill_a_worker_after(process, 4)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, begin + output
    # The line wraps at the width of the terminal.
    said = " ".join(output.split())
    assert re.search(r"stopped early: the workers of pytest-xdist died, and \d+ tests were not run", said)
    assert "INTERNALERROR" not in output
