"""The study of adapted models."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train
from tools.adaptation import main


def cells(line: str) -> list[tuple[str, float]]:
    """What was measured and the mean efficiency."""
    words = re.findall(r"  (as it is|[\d,]+(?: chosen)?) ([\d.]+), [\d.]+", line)
    return [(name, float(mean)) for name, mean in words]


def test_the_study_shows_what_a_made_up_shift_costs_and_what_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = make_kernels(("compv3", "mem"))
    names = {"train": 1, "adapt": 2, "judge": 3}
    for name, seed in names.items():
        records = make_records(make_problems(30, seed=seed), kernels, seed=seed)
        now = records.assign(time=pd.Timestamp("2026-01-01", tz="UTC"))
        write_dataset(now, tmp_path / f"{name}.parquet")
        if name == "train":
            train(records, recipe_named("log_time").with_trees(150), n_splits=2).save(tmp_path / "model")
    asked = [str(tmp_path / "model")]
    asked += [f"--{name}={tmp_path / f'{name}.parquet'}" for name in ("adapt", "judge")]
    assert main([*asked, "--counts=100,200", "--shift=0.5,0.3,0", "--seeds=1"]) == 0
    same, mean, shifted, _ = capsys.readouterr().out.splitlines()
    assert [name for name, _ in cells(same)] == ["as it is", "100", "100 chosen", "200", "200 chosen"]
    assert cells(mean) == cells(same)
    before, after = dict(cells(same)), dict(cells(shifted))
    assert before["100"] > before["as it is"] - 1
    assert after["as it is"] < before["as it is"] - 3
    for name in ("200", "200 chosen"):
        assert after[name] > (after["as it is"] + before["as it is"]) / 2
    assert main([str(tmp_path / "none"), *asked[1:]]) == 2
    assert "no model folder" in capsys.readouterr().err
