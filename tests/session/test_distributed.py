"""Sessions with -n: several devices, and a project's own tests in workers of pytest-xdist."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from tests.pytest_project import PROBLEMS, TWO_KERNELS, Finished, Project, junit_properties, twice
from tile_oracle.problem import problem_from_id


@pytest.fixture(scope="module")
def distributed(make_project: Callable[[], Project]) -> tuple[Project, Finished]:
    project = make_project()
    project.problem_set("four.csv", PROBLEMS)
    project.write(
        "test_theirs.py",
        """
        from tile_oracle.suite.test_kernels import test_kernel

        def test_the_pairs_again(problem, kernel, measure):
            assert measure(problem, kernel).ok

        def test_the_problem(problem):
            assert problem.flops
        """,
    )
    asked = ("test_theirs.py", "--problem-set", "four.csv", *TWO_KERNELS)
    finished = project.pytest(*asked, "-n2", "-v", "--junitxml=junit.xml", "--benchmark-json=bench.json")
    assert finished.status == 0, finished.output
    return project, finished


@pytest.fixture(scope="module")
def on_two_devices(make_project: Callable[[], Project]) -> tuple[Project, Finished]:
    project = make_project()
    project.problem_set("four.csv", PROBLEMS)
    finished = project.pytest("--problem-set", "four.csv", *TWO_KERNELS, "-n2")
    assert finished.status == 0, finished.output
    return project, finished


def test_the_suite_runs_on_two_devices_without_workers(on_two_devices: tuple[Project, Finished]) -> None:
    project, finished = on_two_devices
    assert "devices: 2, each with a process of its own" in finished.lines
    # Not "gw0" alone: this test's own folder is called so where pytest-xdist runs it.
    assert "[gw0]" not in finished.output
    assert "bringing up nodes" not in finished.output
    records = project.records()
    assert len(records[records["round"] == 0]) == 8
    assert twice(records).empty
    assert "8 passed" in finished.output
    shown = re.findall(r"^\[\d/4\] (\S+)  2 ok", finished.output, re.MULTILINE)
    assert shown == sorted(PROBLEMS, key=lambda name: -problem_from_id(name).flops), "long ones first"


@pytest.mark.slow
def test_workers_of_pytest_xdist_measure_nothing_and_the_controller_reports(
    distributed: tuple[Project, Finished],
) -> None:
    project, finished = distributed
    assert set(re.findall(r"^\[(gw\d)\] .*PASSED", finished.output, re.MULTILINE)) == {"gw0", "gw1"}
    parts = sorted(path.name for path in (project.runs[0] / "measurements").glob("part-*.parquet"))
    assert {name.split("-")[1] for name in parts} == {"main"}
    records = project.records()
    assert len(records[records["round"] == 0]) == 8
    assert twice(records).empty
    assert finished.output.count("tile-oracle: four ===") == 1
    assert finished.output.count("\nverdict ") == 1
    assert "4 problems, 8 pairs measured\n" in finished.output
    assert project.verdict()["statuses"]["ok"] == 8  # type: ignore[index]
    assert len(re.findall(r"^\[[1-4]/4\] forward-\S+  2 ok  best ", finished.output, re.MULTILINE)) == 4
    assert f"run: {project.runs[0]}" in finished.lines
    (suite,) = ElementTree.parse(project.folder / "junit.xml").getroot().iter("testsuite")
    measured = [one for one in map(junit_properties, suite.iter("testcase")) if "tflops" in one]
    assert len(measured) == 16
    assert finished.output.count("note: pytest-benchmark is switched off") == 1
    document = project.folder / "bench.json"
    assert not document.exists() or not json.loads(document.read_text() or "{}").get("benchmarks")
