"""Two sides compared: faster, slower, the same, not to be told; kernels and failures; all kinds of files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.comparison.compare import (
    FASTER,
    SAME,
    SLOWER,
    UNKNOWN,
    Change,
    Comparison,
    compare_sides,
    side_of_records,
)
from tile_oracle.comparison.wording import change_text, markdown, short_names, terminal_lines
from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import write_records
from tile_oracle.judge.baseline import Baseline, save_baseline
from tile_oracle.judge.noise import Margin

PROBLEMS = make_problems(30)
KERNELS = make_kernels(("compv3", "compv4"))


def session(
    seed: int,
    slower: Mapping[str, float] | None = None,
    *,
    between: float = 0.003,
    noise: float = 0.001,
    rounds: int = 3,
    everything: float = 1.0,
) -> pd.DataFrame:
    """A sweep and rounds of the four leaders. between: standard deviation of each pair's log latency in this
    session; noise: of each timing. slower: problem -> factor."""
    random = np.random.default_rng(seed)
    base = make_records(PROBLEMS, KERNELS, noise=0)
    base["latency_ms"] *= everything * np.exp(between * random.standard_normal(len(base)))
    base["latency_ms"] *= [(slower or {}).get(problem, 1.0) for problem in base["problem"]]
    leaders = base.sort_values("latency_ms").groupby("problem").head(4)
    frames = []
    for number, part in enumerate([base, *[leaders] * rounds]):
        frame = part.assign(round=number, samples=50, spread=1.349 * noise, run=f"run{seed}")
        frame["latency_ms"] *= np.exp(noise * random.standard_normal(len(frame)))
        frames.append(frame.assign(time=pd.Timestamp("2026-01-01", tz="UTC")))
    table = pd.concat(frames, ignore_index=True)
    flops = {problem.id: problem.flops for problem in PROBLEMS}
    return table.assign(
        tflops=[flops[p] / ms / 1e9 for p, ms in zip(table["problem"], table["latency_ms"], strict=True)]
    )


def compared(old: pd.DataFrame, new: pd.DataFrame, **options: float) -> Comparison:
    return compare_sides(side_of_records("old", old), side_of_records("new", new), **options)


@pytest.mark.slow
def test_sessions_of_the_same_kernels_are_not_slower() -> None:
    wrong = 0
    for seed in range(4):
        counts = compared(session(seed), session(100 + seed)).counts
        wrong += counts[SLOWER] + counts[FASTER]
    assert (
        wrong <= 4
    )  # of 300 problems; at most 5 % of the discoveries may be false, and there is none to make


def test_slower_and_faster_problems_are_found() -> None:
    slow = {problem.id: 1.06 for problem in PROBLEMS[:5]} | {PROBLEMS[5].id: 0.9}
    found = compared(session(1), session(2, slow))
    assert {one.problem for one in found.with_outcome(SLOWER)} == {problem.id for problem in PROBLEMS[:5]}
    assert [one.problem for one in found.with_outcome(FASTER)] == [PROBLEMS[5].id]
    assert all(one.change.low < 6 < one.change.high for one in found.with_outcome(SLOWER))


@pytest.mark.slow
def test_intervals_cover_the_truth() -> None:
    inside = total = 0
    for seed in range(4):
        found = compared(session(seed), session(50 + seed, {p.id: 1.03 for p in PROBLEMS[:10]}))
        for one in found.problems:
            truth = 3.0 if one.problem in {p.id for p in PROBLEMS[:10]} else 0.0
            inside += one.change.low <= truth <= one.change.high
            total += 1
    assert inside / total > 0.9


def test_precise_sessions_are_the_same_and_noisy_ones_cannot_be_told() -> None:
    precise = {"between": 0.0002, "noise": 0.0002}
    assert compared(session(1, **precise), session(2, **precise)).counts[SAME] == len(PROBLEMS)
    noisy = {"between": 0.03, "noise": 0.02}
    assert compared(session(1, **noisy), session(2, **noisy)).counts[UNKNOWN] > 0.9 * len(PROBLEMS)


def test_a_slower_clock_is_seen_in_all_kernels() -> None:
    found = compared(session(1), session(2, everything=1.1))
    assert found.alike.low < 10 < found.alike.high
    assert found.counts[SLOWER] == len(PROBLEMS)


def test_the_same_records_are_exactly_the_same() -> None:
    records = session(1)
    found = compared(records, records)
    assert found.counts[SAME] == len(PROBLEMS)
    assert (found.mean.low, found.mean.high) == (0.0, 0.0)


def test_problems_of_one_side_are_named() -> None:
    old, new = session(1), session(2)
    found = compared(old[old["problem"] != PROBLEMS[0].id], new[new["problem"] != PROBLEMS[1].id])
    assert (found.gone, found.added) == ([PROBLEMS[1].id], [PROBLEMS[0].id])
    with pytest.raises(RecordError, match="no problem in common"):
        compared(old[old["problem"] == PROBLEMS[0].id], new[new["problem"] == PROBLEMS[1].id])


def test_all_that_changed_is_listed_everywhere() -> None:
    old, new = session(1), session(2)
    lost, gained, failing = KERNELS[0].name, KERNELS[1].name, KERNELS[3].name
    old = old[old["kernel"] != gained]
    new = new[new["kernel"] != lost]
    bad = (new["kernel"] == failing) & (new["problem"] == PROBLEMS[0].id)
    new.loc[bad, ["status", "latency_ms", "tflops"]] = ["wrong", np.nan, np.nan]
    before, after = ({p.id: KERNELS[place].name for p in PROBLEMS[:3]} for place in (2, 4))
    found = compare_sides(side_of_records("old", old, before), side_of_records("new", new, after))
    assert found.oracles_changed
    assert (found.gained, found.lost) == ([gained], [lost])
    assert [(one.kernel, one.before, one.status) for one in found.failing] == [(failing, "ok", "wrong")]
    assert not compared(new, new).failing, "it failed before"
    forms = {
        "terminal": "\n".join(terminal_lines(found)),
        "Markdown": markdown(found),
    }
    for form, text in forms.items():
        for what in ("oracles changed", "picks changed", "kernels gained", "kernels lost", "newly failing"):
            assert what in text.lower(), (form, what)
        for name in (lost, gained, KERNELS[2].short_name, KERNELS[4].short_name, failing):
            assert name in text.replace("\\", ""), (form, name)
    assert PROBLEMS[0].title in forms["terminal"]


@pytest.mark.parametrize(
    ("percent", "shown"),
    [(5.123, "+5.12 %"), (-0.5, "-0.50 %"), (250.04, "+250.0 %"), (22290.4, "+22,290 %")],
)
def test_large_changes_have_no_more_digits_than_are_read(percent: float, shown: str) -> None:
    assert change_text(Change(percent, percent, percent)).startswith(shown)


def test_picks_are_compared_by_their_own_times() -> None:
    records = session(1)
    kernels = {name: {p.id: KERNELS[place].name for p in PROBLEMS} for name, place in (("a", 2), ("b", 4))}
    old, new = (side_of_records(name, records, kernels[name]) for name in ("a", "b"))
    found = compare_sides(old, new, by="pick")
    assert len(found.picks_changed) == len(PROBLEMS)
    assert {(one.old_kernel, one.new_kernel) for one in found.problems} == {
        (KERNELS[2].name, KERNELS[4].name)
    }
    with pytest.raises(RecordError, match="has no picks"):
        compare_sides(replace(old, picks={}), new, by="pick")


def test_foreign_names_are_escaped() -> None:
    records = session(1)
    found = compare_sides(side_of_records("<script>|a`", records), side_of_records("b\x1b", records))
    assert "\x1b" not in markdown(found)
    assert "| old | &lt;script&gt;\\|a\\` (records) |" in markdown(found)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = (tmp_path / "old.parquet", tmp_path / "new.parquet")
    write_records(session(1), paths[0])
    write_records(session(2, {problem.id: 1.08 for problem in PROBLEMS[:4]}), paths[1])
    return str(paths[0]), str(paths[1])


def test_the_command_writes_all_forms_and_fails_on_request(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, data = (tmp_path / f"c.{end}" for end in ("md", "json"))
    words = ["compare", *files, "--markdown", str(text), "--json", str(data)]
    assert main(words) == 0
    assert "slower               4 problems" in capsys.readouterr().out
    assert main([*words, "--fail-on", "slower,failing"]) == 1
    assert capsys.readouterr().err == "--fail-on: slower: 4\n"
    text.write_text("# Notes\n")
    assert main(words) == 2
    assert "would be replaced, a file of another kind" in capsys.readouterr().err
    text.unlink()
    assert main([*words, "--fail-on", "failing,lost,gone"]) == 0
    assert json.loads(data.read_text())["counts"][SLOWER] == 4
    assert "### slower" in text.read_text()


def test_a_baseline_is_a_side(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = side_of_records("accepted", session(1))
    picks = {
        problem: Margin(kernel, 0.01, 0.003, 6.0, 3, accepted.times[problem, kernel].latency_ms)
        for problem, kernel in accepted.oracles.items()
    }
    text = {one.name: "x" for one in fields(Baseline) if one.type == "str"}
    known = {PROBLEMS[0].id: {KERNELS[0].name: "crash"}}
    shares = dict.fromkeys(picks, 1.0)
    baseline = Baseline(**text, efficiencies=shares, picks=picks, known_failures=known)
    save_baseline(baseline, tmp_path / "kept.json")
    assert main(["compare", str(tmp_path / "kept.json"), files[0], "--fail-on", "slower,oracle-changed"]) == 0
    said = capsys.readouterr().out
    assert "kernels gained       unknown" in said
    assert f"same                 {len(PROBLEMS)} problems" in said
    assert main(["compare", str(tmp_path / "kept.json"), files[1], "--fail-on", "slower"]) == 1
    assert "slower               4 problems" in capsys.readouterr().out


def test_wrong_arguments_are_one_line(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "train_manifest.json").write_text("{}")
    for words in (
        [str(model), files[0]],
        [*files, "--fail-on", "speed"],
        [*files, "--by", "pick"],
        [files[0], str(tmp_path / "none.json")],
        [*files, "--records", files[0], "--markdown", "x.md"],
    ):
        assert main(["compare", *words]) == 2, words
        assert capsys.readouterr().err.count("\n") == 1


def test_names_lose_what_the_problem_says_and_nothing_else() -> None:
    """A word such as num_stages=4 is not cut at its underscore, and one kernel is one name in all rows."""
    one, other = "cublaslt.a24.cluster=9.split_k=2", "cublaslt.a24.cluster=9.split_k=3"
    prefix = "gemm_bf16_crr_"
    assert short_names(prefix + one, prefix + other) == (one, other)
    assert short_names(prefix + one, prefix + one) == (one, "the same")
    assert short_names("not a kernel", prefix + one) == ("not a kernel", one)
