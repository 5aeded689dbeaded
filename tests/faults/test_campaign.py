"""Shared by every fault campaign: it fails for a broken promise or without a fault."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import tile_oracle
import tools.faults
from tests.processes import run_python
from tools.faults.__main__ import Part, campaigns
from tools.faults.__main__ import main as everything
from tools.faults.campaign import Campaign, Outcome, main
from tools.faults.source_tree import search_path


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


def test_the_page_has_the_full_count_of_every_campaign() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in page.splitlines() if line[:3] == "| `"]
    counts = {cells[1]: cells[3].partition(" ")[0] for cells in rows}
    full = {one.name: f"{one.full_count:,}" for one in campaigns()}
    del full["misbehaviour"]  # some families are of one kind of machine
    assert full.items() <= counts.items()


def test_an_outcome_can_be_the_last_line_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(campaign(Outcome(3, Counter(sessions=2))), ["--seed", "9", "--json", "-"]) == 0
    written = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (written["campaign"], written["seed"], written["counts"]) == ("made_up", 9, {"sessions": 2})


def test_outcomes_of_several_machines_add_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = (
        Outcome(30, {"refused": 20, "scored": 10}, sizes={"seconds a session": 4}),
        Outcome(12, {"refused": 12}, failures=["3: a traceback"], sizes={"seconds a session": 7}),
    )
    files = [tmp_path / "0.json", tmp_path / "1.json"]
    for outcome, file in zip((first, second), files, strict=True):
        main(replace(campaign(outcome), name="model_texts"), ["--json", str(file)])
    capsys.readouterr()
    assert everything(["--add", *map(str, files), "--json", str(tmp_path / "sum.json")]) == 1
    assert "failed: 3: a traceback" in capsys.readouterr().out
    added = json.loads((tmp_path / "sum.json").read_text())["model_texts"]
    assert (added["faults"], added["counts"]) == (42, {"refused": 32, "scored": 10})
    assert added["sizes"] == {"seconds a session": 7}
    assert everything(["--add", str(files[0])]) == 0


def test_parts_have_their_own_seeds_and_share_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def part(name: str, count: int, seed: int) -> Part:
        asked.append((name, count, seed))
        return Part(Outcome(count), 1.0)

    monkeypatch.setattr("tools.faults.__main__._part", part)
    arguments = ["--only", "model_texts", "--only", "verdicts", "--jobs", "3", "--seed", "5"]
    assert everything([*arguments, "--share", "0.1"]) == 0
    texts = [one for one in asked if one[0] == "model_texts"]
    assert sorted(texts, key=lambda one: one[2]) == [
        ("model_texts", 48, 5),
        ("model_texts", 47, 6),
        ("model_texts", 47, 7),
    ]
    # Its own limits apply to all of its runs together, which it distributes over the cores itself.
    assert [one for one in asked if one[0] == "verdicts"] == [("verdicts", 10, 5)]


def test_a_process_without_an_outcome_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.faults.__main__.sys.executable", "false")
    assert everything(["--only", "model_texts", "--share", "0.01"]) == 1


def test_processes_of_a_campaign_find_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a plain source tree, from another folder, with a relative PYTHONPATH."""
    monkeypatch.setenv("PYTHONPATH", "harness")
    monkeypatch.chdir(Path(tools.faults.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": search_path()}
    code = "import sys, tile_oracle, tools.faults; print(tile_oracle.__file__)"
    done = run_python("-c", code, cwd=tmp_path, env=environment)
    assert done.stdout.strip() == tile_oracle.__file__, done.stderr
    assert str(Path("harness").resolve()) in environment["PYTHONPATH"].split(os.pathsep)
