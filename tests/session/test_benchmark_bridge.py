"""pytest-benchmark works on the kernels' own times."""

from __future__ import annotations

import json

import pytest

from tests.pytest_project import PROBLEMS, TWO_KERNELS, Project

ASKED = ("--problem-set", "small.csv", *TWO_KERNELS, "-k", "f1x1")


@pytest.mark.slow
def test_no_table_without_options_of_pytest_benchmark(project: Project) -> None:
    finished = project.pytest(*ASKED)
    assert finished.counts()["passed"] == 2
    assert " benchmark: 2 tests" not in finished.output
    assert "Rounds" not in finished.output


@pytest.mark.slow
def test_saved_times_can_be_compared(project: Project) -> None:
    saved = project.pytest(*ASKED, "--benchmark-autosave")
    assert saved.status == 0, saved.output
    (document,) = (project.folder / ".benchmarks").rglob("0001_*.json")
    assert len(json.loads(document.read_text())["benchmarks"]) == 2
    compared = project.pytest(*ASKED, "--benchmark-compare", "--benchmark-compare-fail=median:100000%")
    assert compared.status == 0, compared.output
    assert f"benchmark '{PROBLEMS[1]}': 4 tests" in compared.output
    assert "(0001_" in compared.output
    assert "(NOW)" in compared.output


@pytest.mark.slow
def test_resumed_pairs_are_not_compared(project: Project) -> None:
    project.pytest(*ASKED)
    resumed = project.pytest(*ASKED, "--resume", "--benchmark-json=bench.json")
    assert resumed.status == 0, resumed.output
    assert not (project.folder / "bench.json").exists()
