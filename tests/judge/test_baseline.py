"""The baseline that accepts a run."""

from __future__ import annotations

import pytest

from tests.judge.made_runs import BEST, CRASH, EXTRA, IDENTITY, IDS, PICK, a_run, baseline
from tile_oracle.errors import GateError
from tile_oracle.judge.baseline import make_baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.verdict import judge


def test_accepted_efficiencies_pass() -> None:
    selection, final = a_run([0.9, 0.4, None], [CRASH])
    made = make_baseline(selection, final, **IDENTITY)
    assert made.efficiencies == pytest.approx({IDS[0]: 0.9, IDS[1]: 0.4, IDS[2]: None})
    assert made.known_failures == {IDS[0]: {EXTRA.name: "crash"}}
    assert (made.coverage_percent, baseline([]).coverage_percent) == (pytest.approx(200 / 3), 0.0)
    assert judge(selection, final, made, Criteria()).state == "passed"


def test_unmeasured_problems_are_kept() -> None:
    known = {IDS[0]: {BEST.name: "crash"}, IDS[1]: {EXTRA.name: "timeout"}, IDS[9]: {PICK.name: "wrong"}}
    before = baseline([0.5, 0.6, 0.7], known)
    made = make_baseline(*a_run([0.9, None]), previous=before, **IDENTITY)
    assert made.efficiencies == pytest.approx({IDS[0]: 0.9, IDS[1]: 0.6})
    assert made.known_failures == {IDS[1]: {EXTRA.name: "timeout"}}


def test_a_run_without_efficiencies_makes_no_baseline() -> None:
    with pytest.raises(GateError, match="no problem of this run has an efficiency"):
        make_baseline(*a_run([None, None]), **IDENTITY)
