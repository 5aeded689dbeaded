"""Shared by every fault campaign: it fails for a broken promise or without a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tools.faults
from tools.faults.__main__ import campaigns
from tools.faults.campaign import Campaign, Outcome, main


def campaign(outcome: Outcome) -> Campaign:
    return Campaign("made_up", "nothing is lost", 7, lambda count, seed: outcome)


def test_a_campaign_without_failures_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "outcome.json"
    assert main(campaign(Outcome(1200, {"sessions": 3})), ["--json", str(file)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["faults", "1,200"] in lines
    assert ["sessions", "3"] in lines
    assert json.loads(file.read_text())["faults"] == 1200


def test_a_broken_promise_is_named_and_fails_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(campaign(Outcome(5, failures=["row 3 is gone"])), []) == 1
    assert "failed: row 3 is gone" in capsys.readouterr().out


def test_a_campaign_that_injected_nothing_fails() -> None:
    assert main(campaign(Outcome(0)), []) == 1


def test_count_and_seed_reach_the_campaign() -> None:
    seen = []

    def run(count: int, seed: int) -> Outcome:
        seen.append((count, seed))
        return Outcome(count)

    one = Campaign("made_up", "nothing is lost", 7, run)
    assert main(one, []) == main(one, ["--count", "3", "--seed", "5"]) == 0
    assert seen[0][0] == 7
    assert seen[1] == (3, 5)


def test_every_campaign_is_found_under_its_module_s_name() -> None:
    folder = Path(tools.faults.__file__).parent
    for one in campaigns():
        assert (folder / f"{one.name}.py").is_file()
        assert one.full_count >= 1
        assert one.promise
