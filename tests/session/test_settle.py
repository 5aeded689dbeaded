"""Suspects are measured again at the end of a session, before a run is accepted or a loss reported."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.pytest_project import PROBLEMS, Project

JUDGED = ("--problem-set", "four.csv", "--kernel-set", "tiny", "--kernel-budget", "1ms", "--samples", "5")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["one process", "two workers"])
def test_leaders_of_a_baseline_are_measured_again_in_later_rounds(
    workers: tuple[str, ...], project: Project
) -> None:
    project.problem_set("four.csv", PROBLEMS)
    finished = project.pytest(*JUDGED, *workers, "--update-baseline", "--settle-budget", "6s")
    assert finished.status == 0, finished.output
    assert "measured again in turn, in up to " in finished.output
    records = project.records()
    later = records[records["round"] >= 2]
    assert len(later)
    for _, rows in later.groupby("problem"):
        timed = rows.groupby("round")["kernel"].agg(set).sort_index().tolist()
        assert all(len(kernels) > 1 for kernels in timed), "a kernel alone is compared with nothing"
        assert all(before <= after for before, after in pairwise(timed)), "who was a leader stays one"
    assert not records.duplicated(["problem", "kernel", "round"]).any()
