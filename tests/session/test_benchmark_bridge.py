"""pytest-benchmark works on the kernels' own times (tests/test_plugin.py), where it is asked to."""

from __future__ import annotations

import pytest

from tests.pytest_project import TWO_KERNELS, Project

ASKED = ("--problem-set", "small.csv", *TWO_KERNELS, "-k", "f1x1")


@pytest.mark.slow
def test_there_is_no_table_without_options_and_no_entry_of_resumed_pairs(project: Project) -> None:
    finished = project.pytest(*ASKED)
    assert finished.counts()["passed"] == 2
    assert " benchmark: 2 tests" not in finished.output
    assert "Rounds" not in finished.output
    resumed = project.pytest(*ASKED, "--resume", "--benchmark-json=bench.json")
    assert resumed.status == 0, resumed.output
    assert not (project.folder / "bench.json").exists()
