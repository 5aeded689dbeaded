"""A cold start: what is measured first where there is no model."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.exploration.exhaustive import Exhaustive
from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.exploration import tune_rounds
from tile_oracle.exploration.cold_start import OPENING, one_operation, transferable
from tile_oracle.problem import problem_from_id
from tile_oracle.record.dataset import load_records, measurements_folder
from tile_oracle.record.dataset_file import write_dataset


@pytest.fixture(scope="module")
def exhaustive() -> Exhaustive:
    return Exhaustive.of(make_records(make_problems(24, seed=8), make_kernels()))


def test_the_opening_gives_every_problem_two_kernels_the_best_by_the_prior_first(
    exhaustive: Exhaustive,
) -> None:
    start = exhaustive.start
    nothing = np.full(len(start.table), np.nan)
    chosen, regret = start.choose(nothing, OPENING * start.problems)
    assert np.isnan(regret)
    assert np.bincount(start.problem_of[chosen]).tolist() == [OPENING] * start.problems
    firsts = chosen[: start.problems]
    least = pd.Series(start._prior).groupby(start.problem_of).min()
    assert np.array_equal(start._prior[firsts], least.to_numpy())
    # A start that was cut goes on with the pairs that are missing.
    half = nothing.copy()
    half[chosen[:10]] = exhaustive.latency_ms[chosen[:10]]
    rest, _ = start.choose(half, OPENING * start.problems - 10)
    assert set(rest.tolist()) == set(chosen[10:].tolist())


def test_unmeasured_pairs_that_may_improve_are_chosen_and_a_failing_kernel_is_not_tried_on(
    exhaustive: Exhaustive,
) -> None:
    start = exhaustive.start
    known = np.full(len(start.table), np.nan)
    chosen, _ = start.choose(known, OPENING * start.problems)
    known[chosen] = exhaustive.latency_ms[chosen]
    again, regret = start.choose(known, 30)
    assert len(set(again.tolist())) == 30
    assert np.isnan(known[again]).all()
    assert 0 < regret < 1
    assert np.bincount(start.problem_of[again]).max() <= 4
    assert np.array_equal(again, start.choose(known, 30)[0])
    favourite = start.table["kernel"][start.choose(known, 1)[0][0]]
    of_it = (start.table["kernel"] == favourite).to_numpy()
    wanted = of_it[start.choose(known, 24)[0]].sum()
    known[np.flatnonzero(of_it)[:12]] = np.inf
    assert of_it[start.choose(known, 24)[0]].sum() < wanted


@pytest.mark.slow
def test_it_loses_less_than_half_of_what_random_choice_loses(exhaustive: Exhaustive) -> None:
    assert exhaustive.regret(6) < exhaustive.random_regret(6) / 2


def test_models_of_other_gpus_are_transferred_and_those_of_cpus_are_not() -> None:
    problem = problem_from_id("forward-bf16-n1-c64-k64-i56x56-f3x3-p1")
    assert [one.spec.arch for one in transferable([problem], "sm_90")] == ["gfx950"]
    assert [one.spec.arch for one in transferable([problem], "gfx950")] == ["sm_90"]
    assert transferable([problem], "cpu") == []
    weight = problem_from_id("bwd_weight-bf16-n1-c64-k64-i56x56-f3x3-p1")
    with pytest.raises(ModelError, match="of 2 kinds"):
        one_operation([problem, weight])


def test_a_budget_that_ends_before_the_first_pair_of_a_round_ends_the_rounds(
    exhaustive: Exhaustive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = make_records(make_problems(24, seed=8), make_kernels()).assign(time=pd.Timestamp(0, tz="UTC"))

    def measure(folder: Path, name: str, *_: object) -> None:
        (place := measurements_folder(folder / name)).mkdir(parents=True)
        if name == "round-01":
            write_dataset(records.merge(pd.read_csv(folder / f"{name}.csv")), place / "part-1.parquet")

    monkeypatch.setattr(tune_rounds, "measure", measure)
    monkeypatch.setattr(tune_rounds, "time", SimpleNamespace(monotonic=count(0, 700).__next__))
    rounds = tune_rounds.TuneRounds(tmp_path, exhaustive.start, (), {})
    rounds.run(1200)
    assert [one.measured for one in rounds.rounds] == [exhaustive.start.problems] * 2


@pytest.mark.slow
def test_on_a_device_rounds_are_sessions_that_record_and_a_stopped_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = [f"forward-fp32-n1-c16-k{k}-i9x9-f3x3-p1" for k in (16, 32, 48)]
    table = pd.DataFrame([problem_from_id(one).as_row() for one in ids])
    table.to_csv("layers.csv", index=False)
    asked = ["tune", "--problem-set", "layers.csv", "--target", "cpu", "--kernel-set", "tiny"]
    asked += ["--run-name=new", "--toolchain", "ziglang", "--json"]
    with monkeypatch.context() as patch:
        minutes = SimpleNamespace(monotonic=count(0, 700).__next__)  # a round takes longer than the budget
        patch.setattr(tune_rounds, "time", minutes)
        assert main([*asked, "--budget", "10m"]) == 0
    first = json.loads(capsys.readouterr().out)["curve"]
    assert [one["name"] for one in first] == ["round-01"]
    assert main([*asked, "--budget", "10h"]) == 0
    curve = json.loads(capsys.readouterr().out)["curve"]
    assert curve[0]["name"] == "round-01"
    records = load_records(sorted((tmp_path / "reports" / "new").glob("round-*/")))
    pairs = records.drop_duplicates(["problem", "kernel"])
    assert len(pairs) == curve[-1]["measured"] > first[0]["measured"]
    assert set(records["problem"]) == set(ids)
    assert curve[-1]["mean_percent"] == 100.0
    assert main([*asked, "--budget", "10m", "--seed", "1"]) == 2
    assert "is of another seed (0)" in capsys.readouterr().err
