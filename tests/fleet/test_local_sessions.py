"""Whole sessions on a fleet of this machine, with real kernels, and what survives kill -9."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from tests.pytest_project import PROBLEMS, QUICK, Finished, Project, twice
from tile_oracle.problem import problem_from_id

FLEET = ("--problem-set", "four.csv", "--target", "cpu", *QUICK, "-p", "no:cacheprovider", "--run-name", "it")
ALL_PAIRS = 32
MARK = "TILE_ORACLE_TEST_FLEET"


@pytest.fixture
def four(project: Project) -> Project:
    project.problem_set("four.csv", PROBLEMS)
    return project


@pytest.fixture
def mark() -> Iterator[str]:
    """What all processes of a session have in their environment; they are gone after the test."""
    value = f"{os.getpid()}-{time.monotonic_ns()}"
    yield value
    for pid in processes(value):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def processes(mark: str, named: str = "") -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                folder.name.isdigit()
                and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
                and named.encode() in (folder / "cmdline").read_bytes()
                and (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                found.append(int(folder.name))
    return found


def session(project: Project, mark: str, *options: str) -> Finished:
    """A session in a process of its own, to its end."""
    process = project.start(*FLEET, *options, environment={MARK: mark})
    output, _ = process.communicate(timeout=240)
    return Finished(process.returncode, output)


def check_records(records: pd.DataFrame) -> None:
    assert len(records[records["round"] == 0]) == ALL_PAIRS
    assert twice(records).empty
    assert set(records["status"]) <= {"ok", "noisy"}
    assert records.loc[records["round"] == 1, "problem"].nunique() == len(PROBLEMS)


def wait_for_rows(project: Project, count: int, limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        rows = sum(
            path.read_bytes().count(b"\n")
            for path in project.folder.glob("reports/*/measurements/.journal-*")
        )
        if rows >= count or list(project.folder.glob("reports/*/measurements/part-*")):
            return
        time.sleep(0.02)
    raise AssertionError("nothing was recorded")


@pytest.mark.slow
def test_a_fleet_session_is_like_any_other_and_its_run_can_be_resumed(four: Project, mark: str) -> None:
    done = session(four, mark, "--fleet", "local", "--fleet-devices", "2")
    assert done.status == 0, done.output
    assert "fleet: this machine" in done.output
    check_records(four.records())
    (run,) = four.runs
    assert (run / "report.html").is_file()
    again = session(four, mark, "--fleet", "--resume")
    assert again.status == 0, again.output
    check_records(four.records())
    assert not processes(mark)


@pytest.mark.slow
def test_a_killed_device_and_a_killed_driver_lose_and_double_nothing(four: Project, mark: str) -> None:
    process = four.start(*FLEET, "--fleet=local", "--fleet-devices=2", environment={MARK: mark})
    wait_for_rows(four, 1)
    os.kill(processes(mark, "device_process")[0], signal.SIGKILL)
    wait_for_rows(four, 9)
    process.kill()
    process.communicate(timeout=60)
    end = time.monotonic() + 10
    while processes(mark) and time.monotonic() < end:
        time.sleep(0.1)
    assert not processes(mark), "a device outlived its session"
    resumed = session(four, mark, "--fleet=local", "--fleet-devices=1", "--resume")
    assert resumed.status == 0, resumed.output
    check_records(four.records())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fleet", "local", "-n1"), "--fleet has workers of its own: leave -n out"),
        (("--fleet-devices", "2"), "--fleet-devices and --fleet-match are for sessions with --fleet"),
        (("--fleet=local", "--fleet-devices=0"), "--fleet-devices 0 is not from 1 to 100,000"),
    ],
)
def test_options_that_do_not_fit_get_one_line(
    project: Project, options: tuple[str, ...], message: str
) -> None:
    done = project.pytest("--problem-set", "small.csv", "--target", "cpu", *QUICK, *options)
    assert done.status == 4
    assert message in done.output
    assert "Traceback" not in done.output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_a_fleet_in_order(four: Project, mark: str, number: signal.Signals) -> None:
    process = four.start(*FLEET, "--fleet=local", "--fleet-devices=2", environment={MARK: mark})
    wait_for_rows(four, 3)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    assert not list(four.folder.glob("reports/*/measurements/.journal-*"))
    assert "Traceback" not in output
    end = time.monotonic() + 20
    while (left := processes(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    assert not left


def test_the_tests_of_a_fleet_run_longest_first(project: Project) -> None:
    project.problem_set("shortest_first.csv", PROBLEMS[1::-1])
    asked = ("--problem-set", "shortest_first.csv", "--target", "cpu", *QUICK, "--fleet", "local")
    done = project.pytest(*asked, "--collect-only", "-q")
    first = [
        line.partition("[")[2].partition("-16x16x64")[0] for line in done.lines if "test_kernel[" in line
    ]
    shuffled = project.pytest(*asked, "--collect-only", "-q", "--budget=1h")
    in_set = [
        line.partition("[")[2].partition("-16x16x64")[0] for line in shuffled.lines if "test_kernel[" in line
    ]
    assert sorted(first) == sorted(in_set)
    assert first != in_set
    flops = [problem_from_id(one).flops for one in dict.fromkeys(first) if one in PROBLEMS]
    assert flops == sorted(flops, reverse=True)


def test_without_ray_there_is_one_line_and_no_run(project: Project) -> None:
    project.write("no_ray.py", 'import sys\n\nsys.modules["ray"] = None\n')
    asked = ("--problem-set", "small.csv", "--target", "cpu", *QUICK, "--fleet=auto", "-p", "no_ray")
    done = project.pytest(*asked)
    assert done.status == 4
    assert "--fleet needs Ray: pip install 'tile-oracle[fleet]'" in done.last
    assert not project.runs
