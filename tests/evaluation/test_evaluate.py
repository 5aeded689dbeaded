"""Evaluation and comparison of rankings whose metrics are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.comparison.compare import FASTER, SLOWER
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.evaluate import compare, evaluate
from tile_oracle.pickers.of_records import read_picks
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.final import problems_of
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

PICK_DIMENSIONS = ("N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "Ho", "Wo")


def perfect(records: pd.DataFrame) -> pd.DataFrame:
    return records[["problem", "kernel"]].assign(predicted_tflops=records["tflops"])


def second_best(records: pd.DataFrame) -> pd.DataFrame:
    place = records.groupby("problem")["tflops"].rank(ascending=False)
    return perfect(records).assign(predicted_tflops=np.where(place == 2, 1e9, records["tflops"]))


def test_a_perfect_ranking(records: pd.DataFrame) -> None:
    found = evaluate("perfect", records, perfect(records))
    assert {name: value.value for name, value in found.headlines.items()} == dict.fromkeys(
        found.headlines, 100.0
    )
    assert (found.efficiency.top_1_percent, found.efficiency.covered) == (100.0, 40)
    json.dumps(found.as_json(), allow_nan=False, default=str)


def test_what_is_outside_of_the_training_is_counted(
    records: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    most = int(records["C"].median())
    train(records[records["C"] <= most], recipe_named("log_time").with_trees(20), n_splits=2).save(
        tmp_path / "narrow"
    )
    wide = set(records.loc[records["C"] > most, "problem"])
    write_dataset(records.assign(time=pd.Timestamp("2026-01-01", tz="UTC")), tmp_path / "all.parquet")
    given = ["evaluate", str(tmp_path / "narrow"), str(tmp_path / "all.parquet"), "--json"]

    assert main([*given, str(tmp_path / "all.json")]) == 0
    found = json.loads((tmp_path / "all.json").read_text())["extrapolating"]
    assert wide <= found["picks"].keys()
    assert all("C = " in found["picks"][problem] for problem in wide)
    outside = " problems lie outside the model's training range (C: "
    assert f"{len(wide)}{outside}" in (said := capsys.readouterr().out)
    assert "(trained for" not in said
    other = pd.read_parquet(tmp_path / "all.parquet").assign(arch="gfx942")
    write_dataset(other, tmp_path / "other.parquet")
    assert main([*given[:2], str(tmp_path / "other.parquet")]) == 0
    assert " model narrow (trained for gfx950, not gfx942)" in capsys.readouterr().out

    (tmp_path / "run" / "measurements").mkdir(parents=True)
    for records_first in ("all.parquet", "run"):
        assert main(["evaluate", str(tmp_path / records_first), str(tmp_path / "picks.csv")]) != 0
        assert "is no model: first the MODEL, then its RECORDS" in capsys.readouterr().err


def test_always_the_second_best(records: pd.DataFrame) -> None:
    found = evaluate("second", records, second_best(records))
    ratio = records.groupby("problem")["tflops"].agg(lambda t: t.nlargest(2).iloc[1] / t.max())
    assert found.headlines["mean"].value == pytest.approx(100 * ratio.mean())
    assert found.headlines["min"].value == pytest.approx(100 * ratio.min())
    assert found.headlines["P10"].value == pytest.approx(100 * ratio.quantile(0.1))
    assert found.efficiency.top_1_percent == 0.0
    assert found.efficiency.measure_top_percent[1] == pytest.approx(100.0)
    assert found.headlines["mean"].low <= found.headlines["mean"].value <= found.headlines["mean"].high
    assert found.report.covered["problem"].iloc[0] == ratio.idxmin()
    slices = found.report.slices.set_index("slice")
    assert slices.loc["1x1", "problems"] + slices.loc["3x3", "problems"] == 40


def test_a_pick_that_is_wrong_has_no_efficiency_and_says_so(records: pd.DataFrame) -> None:
    ranking = perfect(records)
    problem = records["problem"].iloc[0]
    best = records[records["problem"] == problem]["tflops"].idxmax()
    broken = records.copy()
    broken.loc[best, ["status", "latency_ms", "tflops"]] = ["wrong", None, None]
    found = evaluate("m", broken, ranking)
    row = found.selection.set_index("problem").loc[problem]
    assert (row["efficiency"], row["pick_status"]) == (0.0, "wrong")


def test_comparison_counts_and_verdict(records: pd.DataFrame) -> None:
    good, bad = evaluate("good", records, perfect(records)), evaluate("bad", records, second_best(records))
    worse = compare(records, good, bad)
    assert (len(worse.changes.picks_changed), worse.changes.counts[FASTER]) == (40, 0)
    assert worse.efficiency["mean"].old == pytest.approx(100.0)
    assert worse.efficiency["mean"].change.value == pytest.approx(bad.headlines["mean"].value - 100.0)
    assert worse.verdict.failed
    assert worse.changes.counts[SLOWER] > 0
    better = compare(records, bad, good)
    assert not better.verdict.failed
    assert better.changes.counts[FASTER] == worse.changes.counts[SLOWER]
    assert not compare(records, good, good).verdict.failed
    json.dumps(better.as_json(), default=str)


def test_nothing_in_common(records: pd.DataFrame) -> None:
    other = perfect(make_records(make_problems(3, seed=99), make_kernels()))
    with pytest.raises(ModelError, match="no problem has both"):
        evaluate("m", records, other)


def test_picks_are_joined_by_dimensions_and_never_by_index(records: pd.DataFrame, tmp_path: Path) -> None:
    problems = problems_of(records)
    rows = [
        {"problem_idx": 0, **{d: getattr(p, d) for d in PICK_DIMENSIONS}}
        | {
            "kernel_name": make_kernels()[i % 10].name.removesuffix("_intrawave"),
            "predicted_tflops": 5.0,
            "rank": 1,
        }
        for i, p in enumerate(problems)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "picks.csv", index=False)
    found, note = read_picks(tmp_path / "picks.csv", problems[:7])
    assert note == ""
    assert found["problem"].tolist() == [p.id for p in problems[:7]]
    assert found["kernel"].tolist() == [make_kernels()[i].name for i in range(7)]
    # Two problems that differ only in their padding are distinguished by Ho and Wo.
    first = next(p for p in problems if p.Y == 3)
    unpadded = type(first)(**{**first.as_row(), "pad_h": 0, "pad_w": 0})
    found, _ = read_picks(tmp_path / "picks.csv", [unpadded, first])
    assert found["problem"].tolist() == [first.id]
    pd.DataFrame(rows).drop(columns=["Ho", "Wo", "Hi"]).to_csv(tmp_path / "vague.csv", index=False)
    with pytest.raises(ModelError, match="fit more than one"):
        read_picks(
            tmp_path / "vague.csv", [problems[0], type(problems[0])(**{**problems[0].as_row(), "Hi": 200})]
        )
    (tmp_path / "empty.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ModelError, match="not a file of picks"):
        read_picks(tmp_path / "empty.csv", problems)


def test_picks_may_name_problems_by_ids_in_their_order(records: pd.DataFrame, tmp_path: Path) -> None:
    one, other, unasked = problems_of(records)[:3]
    first, second = (kernel.name for kernel in make_kernels()[:2])
    file = tmp_path / "picks.csv"

    def write(*rows: tuple[str, str]) -> None:
        pd.DataFrame(rows, columns=["problem", "kernel"]).to_csv(file, index=False)

    write((one.id, second), (other.id, first), (one.id, first), (unasked.id, first))
    found, _ = read_picks(file, [one, other])
    ranked = found.sort_values("predicted_tflops", ascending=False)
    of_one = ranked["problem"] == one.id
    assert (ranked[of_one]["kernel"].tolist(), set(ranked["problem"])) == (
        [second, first],
        {one.id, other.id},
    )
    write((one.id, first), (f"{other.id} ", first))
    with pytest.raises(ModelError, match=rf"picks\.csv:3: '{other.id} ' is not a problem id: did you mean"):
        read_picks(file, [one])
