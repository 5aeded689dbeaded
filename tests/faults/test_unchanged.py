"""A sample of the campaign of unchanged sessions: one repeat, four small problems, two kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.pytest_project import PROBLEMS, TWO_KERNELS, Project
from tools.faults import unchanged
from tools.faults.unchanged import Session


@pytest.mark.slow
def test_a_repeat_is_judged_by_the_picks_of_its_baseline(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TILE_ORACLE_CACHE", "TMPDIR"):
        monkeypatch.setenv(name, project.environment[name])
    outcome = unchanged.run(
        1,
        0,
        problem_set=str(project.problem_set("four.csv", PROBLEMS)),
        keep=tmp_path,
        # Efficiencies of microsecond kernels, timed for a millisecond, differ in every run.
        extra=(*TWO_KERNELS, "--model", "out-of-fold", "--problem-tolerance=100", "--p10-tolerance=100"),
    )
    assert outcome.faults == 1
    assert not [line for line in outcome.failures if "ended with status" in line], outcome.failures
    kept = tmp_path / "series-1"
    (baseline,) = (kept / "baselines").rglob("*.json")
    accepted = json.loads(baseline.read_text())["picks"]
    assert accepted
    selection = pd.read_parquet(kept / "reports" / "repeat-1" / "selection.parquet").set_index("problem")
    for problem, pick in accepted.items():
        assert selection.at[problem, "pick_kernel"] == pick["pick"]


def test_two_failed_sessions_of_fifty_fail_the_campaign() -> None:
    baseline = Session("baseline", 0, 1.0, "no baseline")
    passed, failed = Session("a", 0, 1.0, "passed"), Session("b", 1, 1.0, "failed", ("mean",))
    assert not unchanged.outcome_of([[baseline, *[passed] * 49, failed]]).failures
    outcome = unchanged.outcome_of([[baseline, *[passed] * 48, failed, failed]])
    assert outcome.failures == ["2 of 50 unchanged sessions failed"]
    assert outcome.counts["not met: mean"] == 2


def test_a_session_without_a_verdict_fails_the_campaign() -> None:
    broken = Session("a", 4, 1.0, tail="usage error")
    outcome = unchanged.outcome_of([[Session("baseline", 0, 1.0, "no baseline"), broken]])
    assert outcome.failures == ["a ended with status 4: usage error"]
    assert unchanged.outcome_of([[broken]]).failures == ["a baseline ended with status 4: usage error"]
