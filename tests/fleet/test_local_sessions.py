"""Whole sessions on all devices of this machine: --fleet=local, which is -n with all of them."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from tests.pytest_project import PROBLEMS, QUICK, Project, twice
from tile_oracle.problem import problem_from_id

FLEET = ("--problem-set", "four.csv", "--target", "cpu", *QUICK, "-p", "no:cacheprovider", "--run-name", "it")
ALL_PAIRS = 32


@pytest.fixture
def four(project: Project) -> Project:
    project.problem_set("four.csv", PROBLEMS)
    return project


def check_records(records: pd.DataFrame) -> None:
    assert len(records[records["round"] == 0]) == ALL_PAIRS
    assert twice(records).empty
    assert set(records["status"]) <= {"ok", "noisy"}
    assert records.loc[records["round"] == 1, "problem"].nunique() == len(PROBLEMS)


@pytest.mark.slow
def test_a_fleet_session_is_like_any_other_and_its_run_can_be_resumed(four: Project) -> None:
    done = four.pytest(*FLEET, "--fleet", "local", "-n2")
    assert done.status == 0, done.output
    assert "devices: 2, each with a process of its own" in done.output
    check_records(four.records())
    (run,) = four.runs
    assert (run / "report.html").is_file()
    again = four.pytest(*FLEET, "--fleet", "--resume")
    assert again.status == 0, again.output
    check_records(four.records())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fleet", "local", "--fleet-match=H200"), "--fleet-match is for sessions with --fleet=ADDRESS"),
        (("--fleet=auto", "--first=2"), "--first is for sessions of one process: leave -n and --fleet out"),
    ],
)
def test_options_that_do_not_fit_get_one_line(
    project: Project, options: tuple[str, ...], message: str
) -> None:
    done = project.pytest("--problem-set", "small.csv", "--target", "cpu", *QUICK, *options)
    assert done.status == 4
    assert message in done.output
    assert "Traceback" not in done.output


def test_the_tests_of_a_fleet_run_longest_first(project: Project) -> None:
    project.problem_set("shortest_first.csv", PROBLEMS[1::-1])
    asked = ("--problem-set", "shortest_first.csv", "--target", "cpu", *QUICK, "--fleet", "local")

    def order(*more: str) -> list[str]:
        lines = project.pytest(*asked, "--collect-only", "-q", *more).lines
        return [re.sub(r".*\[(.*)-16x16x64.*", r"\1", line) for line in lines if "test_kernel[" in line]

    longest_first, as_in_the_set = order(), order("--budget=1h")
    assert sorted(longest_first) == sorted(as_in_the_set)
    assert longest_first != as_in_the_set
    flops = [problem_from_id(one).flops for one in dict.fromkeys(longest_first) if one in PROBLEMS]
    assert flops == sorted(flops, reverse=True)


def test_without_ray_there_is_one_line_and_no_run(project: Project) -> None:
    project.write("no_ray.py", 'import sys\n\nsys.modules["ray"] = None\n')
    asked = ("--problem-set", "small.csv", "--target", "cpu", *QUICK, "--fleet=auto", "-p", "no_ray")
    done = project.pytest(*asked)
    assert done.status == 4
    assert "--fleet needs Ray: pip install 'tile-oracle[fleet]'" in done.last
    assert not project.runs
