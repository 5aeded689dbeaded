"""The study of adapted models."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.training.adapt import effects_of
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train
from tools.adaptation import main


def cells(line: str) -> list[tuple[str, float]]:
    """What was measured and the mean efficiency."""
    words = re.findall(r"  (as it is|[\d,]+(?: chosen)?) ([\d.]+), [\d.]+", line)
    return [(name, float(mean)) for name, mean in words]


def shifted(records: pd.DataFrame) -> pd.DataFrame:
    """The records as another compiler might give them: a factor of each pipeline and each tile."""
    names = sorted(records["kernel"].unique())
    random, shift = np.random.default_rng(0), np.zeros(len(names))
    for deviation, codes in zip((0.5, 0.3), effects_of(names).values(), strict=False):
        shift += random.normal(0.0, deviation, int(codes.max()) + 1)[codes]
    slower = records["kernel"].map(dict(zip(names, np.exp(shift), strict=True))).astype(float)
    return records.assign(latency_ms=records["latency_ms"] * slower, tflops=records["tflops"] / slower)


@pytest.mark.slow
def test_the_study_shows_what_a_made_up_shift_costs_and_what_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = make_kernels(("compv3", "mem"))
    names = {"train": 1, "adapt": 2, "judge": 3}
    for name, seed in names.items():
        records = make_records(make_problems(30, seed=seed), kernels, seed=seed)
        now = records.assign(time=pd.Timestamp("2026-01-01", tz="UTC"))
        write_dataset(now, tmp_path / f"{name}.parquet")
        write_dataset(shifted(now), tmp_path / f"shifted_{name}.parquet")
        if name == "train":
            train(records, recipe_named("log_time").with_trees(150), n_splits=2).save(tmp_path / "model")
    seen = []
    for shift in ("", "shifted_"):
        records = [f"--{name}={tmp_path / f'{shift}{name}.parquet'}" for name in ("adapt", "judge")]
        assert main([str(tmp_path / "model"), *records, "--counts=100,200", "--seeds=1"]) == 0
        same, mean = (cells(line) for line in capsys.readouterr().out.splitlines())
        assert [name for name, _ in same] == ["as it is", "100", "100 chosen", "200", "200 chosen"]
        assert mean == same
        seen.append(dict(same))
    before, after = seen
    assert before["100"] > before["as it is"] - 1
    assert after["as it is"] < before["as it is"] - 3
    for name in ("200", "200 chosen"):
        assert after[name] > (after["as it is"] + before["as it is"]) / 2
    assert main([str(tmp_path / "none"), *records]) == 2
    assert "no model folder" in capsys.readouterr().err
