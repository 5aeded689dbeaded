"""Runs that end early in any way, and how --resume continues them."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pandas as pd
import pytest

from tests.processes import LONGEST_S, has_ended, wait_until
from tests.pytest_project import (
    CLOCK_THAT_JUMPS,
    PROBLEMS,
    SHORTLY,
    TWO_KERNELS,
    Project,
    children,
    end_of,
    twice,
)
from tile_oracle.measure.dispatcher import ISOLATED_AT_ONCE

ALL_PAIRS = 32
"""Four problems and the eight kernels of the set tiny."""
SWEEP = (
    *("--problem-set", "four.csv", "--kernel-set", "tiny", "--kernel-budget", "5ms", "--model", "none"),
    *("-v", "--resume"),
)
"""Long enough to interrupt. On a busy machine a kernel may be noisy, which skips its test."""
TWELVE = ("--kernel-set", "default", "--kernel-filter", "tile_m < 64", *SHORTLY, "--model", "out-of-fold")
"""Twelve kernels: more than a worker is sent in advance."""


@pytest.fixture
def four(project: Project) -> Project:
    project.problem_set("four.csv", PROBLEMS)
    return project


def passed_until(process: subprocess.Popen[str], count: int) -> set[str]:
    """The ids of the first `count` pairs that a run with -v reports; fewer if it ends earlier."""
    seen: set[str] = set()
    while len(seen) < count and (line := process.stdout.readline()):
        seen |= passed_in(line)
    return seen


def passed_in(output: str) -> set[str]:
    """The ids of the pairs that a run with -v reports as passed."""
    found = re.findall(r"test_kernel\[(\S+)\] PASSED|PASSED .*test_kernel\[(\S+)\]", output)
    return {before or after for before, after in found}


def worker_of(process: subprocess.Popen[str]) -> int:
    """The process that measures for a pytest without xdist workers."""
    (pid,) = (pid for pid, command in children(process.pid).items() if "tile_oracle.device.worker" in command)
    return pid


def pairs(records: pd.DataFrame) -> set[str]:
    short = records["kernel"].str.removeprefix("grouped_conv_forward_fp32_2d_")
    return set(records["problem"] + "-" + short)


# ---- recorded pairs are not measured again ----------------------------------------------------------


def test_resume_without_an_earlier_run_starts_a_new_one(project: Project) -> None:
    finished = project.pytest("--problem-set", "small.csv", *TWO_KERNELS, "--resume", "-k", "f1x1")
    assert finished.status == 0
    assert f"run: {project.runs[0]} (new: there is no run to resume)" in finished.lines


@pytest.mark.parametrize("more", [(), pytest.param(("-n1",), marks=pytest.mark.slow)])
def test_a_run_of_another_device_is_not_resumed(project: Project, more: tuple[str, ...]) -> None:
    """Its oracle would be the fastest kernel of the faster device."""
    asked = ("--problem-set", "small.csv", *TWO_KERNELS, "--run-name", "moved", "--resume", "--model=none")
    assert project.pytest(*asked, "-k", "f1x1").status == 0
    (part,) = (project.folder / "reports" / "moved" / "measurements").glob("part-*.parquet")
    kept = pd.read_parquet(part).assign(device="a faster CPU")
    kept.to_parquet(part)
    moved = project.pytest(*asked, *more)
    assert moved.status == 2, moved.output
    assert "moved was measured on a faster CPU, and this device is " in moved.output
    assert "continue it there, or begin another run without --resume" in moved.output
    assert "Traceback" not in moved.output
    assert len(project.records()) == len(kept)


@pytest.mark.slow
def test_a_named_run_is_not_resumed_with_other_settings(project: Project) -> None:
    named = ("--problem-set", "small.csv", *TWO_KERNELS, "--run-name", "mine")
    assert project.pytest(*named, "-k", "f1x1").status == 0
    assert (project.folder / "reports" / "mine" / "report.html").is_file()
    taken = project.pytest(*named)
    assert taken.status == 4
    assert "reports/mine exists already: add --resume to continue it" in taken.last
    other = project.pytest(*named, "--resume", "--data-seed=7")
    assert other.status == 4
    assert "reports/mine cannot be resumed: it was made with another data seed" in other.last
    distributed = project.pytest(*named, "-n1")
    assert distributed.status == 4
    assert "add --resume" in distributed.last
    assert "Traceback" not in distributed.output


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-n2",)], ids=["one process", "two workers"])
def test_a_second_session_on_a_run_is_refused(four: Project, more: tuple[str, ...]) -> None:
    process, _ = four.start_held(1, *SWEEP, *more)
    second = four.pytest(*SWEEP)
    four.let_go()
    assert second.status == 4
    assert f"is in use by another session (process {process.pid}): wait until it ends" in second.last
    assert "Traceback" not in second.output
    assert end_of(process).status == 0
    assert len(pairs(four.records())) == ALL_PAIRS
    assert twice(four.records()).empty


# ---- Ctrl-C -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_run_ends_cleanly_and_resumes(four: Project) -> None:
    process, begin = four.start_held(3, *SWEEP)
    worker = worker_of(process)
    process.send_signal(signal.SIGINT)
    finished = end_of(process)
    assert finished.status == 2
    assert "; stopped early: interrupted" in finished.output
    assert "KeyboardInterrupt" in finished.output
    assert "Traceback" not in finished.output
    wait_until(lambda: has_ended(worker))
    kept = four.records()
    assert passed_in(begin) <= pairs(kept)
    assert len(pairs(kept)) < ALL_PAIRS
    counts = four.pytest(*SWEEP).counts()
    assert counts["passed"] + counts.get("skipped", 0) == ALL_PAIRS
    again = four.records()
    assert again["time"].isin(kept["time"]).sum() == len(kept)
    assert len(pairs(again)) == ALL_PAIRS
    assert twice(again).empty


# ---- kill -9 ----------------------------------------------------------------------------------------


def kill_pytest(process: subprocess.Popen[str]) -> None:
    process.kill()


def kill_measuring_worker(process: subprocess.Popen[str]) -> None:
    for pid, command in children(process.pid).items():
        if "tile_oracle.device.worker" in command:
            os.kill(pid, signal.SIGKILL)


Kill = Callable[[subprocess.Popen[str]], None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "more", "moments"),
    [(kill_pytest, (), 4), (kill_measuring_worker, (), 3), (kill_pytest, ("-n2",), 1)],
    ids=["pytest", "measuring worker", "pytest with two devices"],
)
def test_sigkill_loses_no_finished_pair(
    four: Project, kill: Kill, more: tuple[str, ...], moments: int
) -> None:
    """Killed repeatedly at random times; every reported pair is kept with its time."""
    reported: set[str] = set()
    process = four.start(*SWEEP, *more)
    for number in random_numbers(moments, seed=f"{kill.__name__}{more}"):
        if process.poll() is not None:
            process = four.start(*SWEEP, *more)
        reported |= passed_until(process, number)
        descendants = list(children(process.pid))
        kill(process)
        if kill is kill_pytest:
            process.communicate(timeout=LONGEST_S)
            for one in descendants:
                wait_until(partial(has_ended, one))
    process.communicate(timeout=LONGEST_S)
    resumed_at = datetime.now(UTC)
    finished = four.pytest(*SWEEP, *more)
    assert "Traceback" not in finished.output
    records = four.records()
    assert len(pairs(records)) == ALL_PAIRS
    assert twice(records).empty
    early = records[(records["time"] < resumed_at) & (records["round"] == 0)]
    assert reported <= pairs(early)
    assert list((four.runs[0] / "measurements").glob(".*")) == []
    # A kill looks like a crash of the running kernel: at most one crash per kill.
    blamed = records[(records["round"] == 0) & ~records["status"].isin(["ok", "noisy"])]
    assert len(blamed) <= (moments if kill is kill_measuring_worker else 0)


def random_numbers(count: int, seed: str) -> list[int]:
    """After how many further reported pairs to kill; their sum is below the number of pairs."""
    numbers = random.Random(seed)
    return [numbers.randrange(ALL_PAIRS // count - 1) for _ in range(count)]


# ---- budget -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-n2",)], ids=["one process", "two workers"])
def test_a_budget_stops_and_resume_continues(project: Project, more: tuple[str, ...]) -> None:
    project.problem_set("eight.csv", (*PROBLEMS, *(one.replace("-n", "-n3", 1) for one in PROBLEMS)))
    asked = ("--problem-set", "eight.csv", *TWO_KERNELS, *more)
    project.write("clock_that_jumps.py", CLOCK_THAT_JUMPS)
    first = project.pytest(*asked, "--budget", "1h", "-p", "clock_that_jumps")
    assert first.status == 0
    passed = first.counts()["passed"]
    # The problem of each device, and the next one of each that told both its pairs at once.
    assert passed in range(1, 9 if more else 3)
    assert "stopped early: the budget of 1h is spent" in first.output
    assert f"{16 - passed} pair" in first.output
    assert len(pairs(project.records())) == passed
    if more:
        return  # resuming is the same for both
    second = project.pytest(*asked, "--budget", "1h", "--resume")
    assert second.status == 0
    assert (second.counts(), len(pairs(project.records()))) == ({"passed": 16}, 16)
    assert "stopped early" not in second.output
    assert twice(project.records()).empty


@pytest.mark.slow
def test_a_budget_holds_inside_a_problem(project: Project) -> None:
    """What the worker has in advance is measured, nothing else; the problem is judged as it is."""
    project.problem_set("one.csv", PROBLEMS[:1])
    asked = ("--problem-set", "one.csv", *TWELVE, "--budget", "1h")
    project.write("clock_that_jumps.py", CLOCK_THAT_JUMPS)
    first = project.pytest(*asked, "-p", "clock_that_jumps")
    swept = project.records()
    assert set(swept["round"]) == {0}
    assert 1 <= len(swept) <= ISOLATED_AT_ONCE
    assert first.counts()["passed"] == len(swept)
    assert f"{12 - len(swept)} pairs left; stopped early: the budget of 1h is" in first.output
    assert f"{len(swept)} ok" in first.output
    assert "incomplete: the budget of 1h is spent" in first.output
    second = project.pytest(*asked, "--resume")
    assert "stopped early" not in second.output
    assert "incomplete" not in second.output
    records = project.records()
    assert len(pairs(records)) == 12
    assert records["round"].max() >= 1
    assert twice(records).empty


@pytest.mark.slow
def test_cold_and_warm_runs_are_never_combined(project: Project) -> None:
    """Records say which they are, and neither kind of run resumes the other."""
    common = ("--problem-set", "small.csv", *TWO_KERNELS, "-k", "i5x5", "--samples", "3", "--resume")
    for options in (("--cold-cache",), (), ("--cold-cache",)):
        done = project.pytest(*common, *options)
        assert done.status == 0, done.output
    assert "(resumed)" in done.output
    assert len(project.runs) == 2
    found = {}
    for run in project.runs:
        records = project.records(run)
        (cache,) = records["cache"].unique()
        swept = records[records["round"] == 0]
        assert set(swept["samples"]) == {3}
        assert (swept["busy_ms"] >= 3 * swept["latency_min_ms"]).all()
        assert (swept["build_wait_ms"] >= 0).all()
        assert records["throttled"].isna().all(), "nothing reads a CPU's clocks"
        found[cache] = records["latency_ms"].median()
    assert set(found) == {"warm", "cold"}
