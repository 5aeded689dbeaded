"""Held-out metrics, and the effect of the output check."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.errors import ModelError
from tile_oracle.evaluation.study import read_study, study, verification
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train
from tools.study import main

SMALL = recipe_named("log_time").with_trees(30)


@pytest.fixture(scope="module")
def halves() -> tuple[pd.DataFrame, pd.DataFrame]:
    problems = make_problems(28, seed=11)
    return make_records(problems[:20], make_kernels()), make_records(problems[20:], make_kernels())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, halves: tuple[pd.DataFrame, pd.DataFrame]) -> Path:
    path = tmp_path_factory.mktemp("models") / "made"
    train(halves[0], recipe=SMALL, n_splits=2).save(path)
    return path


@pytest.mark.slow
def test_the_study_judges_recipes_on_problems_that_they_have_not_seen(
    folder: Path, halves: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    training, test = halves
    leak = pd.concat([test, training[training["problem"] == training["problem"].iloc[0]]])
    found = study(folder, training, leak, recipes=("tflops",))
    assert found["test"]["problems"] == 8
    assert found["test"]["problems_left_out"] == 1
    assert [row["name"] for row in found["rows"]] == ["tflops", "the model as shipped"]
    assert all(row["problems"] == 8 for row in found["rows"])
    assert found["rows"][0]["headlines"]["mean"]["value"] > 80
    assert json.loads(json.dumps(found)) == found


@pytest.mark.slow
def test_a_model_that_saw_the_test_is_not_judged_on_it(
    folder: Path, halves: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    training, _ = halves
    later = training["problem"].isin(training["problem"].unique()[10:])
    found = study(folder, training[~later], training[later], recipes=("tflops",))
    assert [row["name"] for row in found["rows"]] == ["tflops"]
    assert study(folder, training, training)["rows"] == []


def test_verification_counts_oracles_that_nobody_looked_at() -> None:
    records = make_records(make_problems(3, seed=5), make_kernels()).astype({"detail": object})
    fastest = records.groupby("problem")["latency_ms"].idxmin().to_numpy()
    slowest = records.groupby("problem")["latency_ms"].idxmax().to_numpy()
    records.loc[fastest[0], "detail"] = "40 % of the output is zero"  # imported and trusted
    records.loc[fastest[1], "status"] = "wrong"  # imported and not
    records.loc[slowest[2], "status"] = "wrong"  # not the fastest
    found = verification(records)
    assert (found["unverified_oracles"], found["timed_without_check"], found["problems"]) == (2, 3, 3)
    assert found["problems_with_a_wrong_kernel"] == 2
    assert found["pairs"] == {"ok": 28, "wrong": 2}
    records.loc[records["status"] == "wrong", "latency_ms"] = np.nan  # as our own runs record it
    assert verification(records)["unverified_oracles"] == 1


def test_the_command_writes_the_file_and_says_what_is_wrong(
    tmp_path: Path,
    folder: Path,
    halves: tuple[pd.DataFrame, pd.DataFrame],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, records in zip(("train", "test"), halves, strict=True):
        timed = records.assign(time=pd.Timestamp("2026-01-02", tz="UTC"))
        write_dataset(timed, tmp_path / f"{name}.parquet")
    command = [
        str(folder),
        str(tmp_path / "train.parquet"),
        "--test",
        str(tmp_path / "test.parquet"),
    ]
    assert main([*command, "--picks", "nameless"]) == 2
    assert "is not NAME=FILE" in capsys.readouterr().err
    assert read_study(folder) is None
    (folder / "study.json").write_text('{"schema": 99}')
    with pytest.raises(ModelError, match="is of schema 99"):
        read_study(folder)
    (folder / "study.json").unlink()
