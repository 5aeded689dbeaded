"""The unit of a model's scores."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.errors import ModelError
from tile_oracle.features.groups import group_codes
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import OUT_OF_FOLD_FILE, TRAINING_FILE, read_manifest
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.training.adapt import adapted, measured_scale, save_adapted, stated_scale
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

KERNELS = make_kernels(("compv3", "mem"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "model"
    records = make_records(make_problems(40, seed=1), KERNELS)
    train(records, recipe_named("lambdarank").with_trees(150), n_splits=2).save(folder)
    write_dataset(records.assign(time=pd.Timestamp("2026-01-01", tz="UTC")), folder / TRAINING_FILE)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "model"))


def test_cross_validation_tells_the_scale_of_new_problems(folder: Path) -> None:
    new = make_records(make_problems(60, seed=9), KERNELS)
    columns = {str(name): new[name].to_numpy() for name in new}
    problems, log_time = group_codes(new), np.log(new["latency_ms"].to_numpy())
    score = Predictor.load(folder).ranker.log_time(columns, problems)
    stated = stated_scale(folder)
    assert stated == pytest.approx(measured_scale(problems, score, log_time), rel=0.4)
    with pytest.raises(ModelError, match="nothing to do with their times"):
        measured_scale(problems, -score, log_time)


def test_an_adapted_model_keeps_its_scale(folder: Path, tmp_path: Path) -> None:
    few = make_records(make_problems(20, seed=5), KERNELS)
    predictor, shifts = adapted(folder, few)
    assert shifts.scale == stated_scale(folder)
    save_adapted(predictor, shifts, few, tmp_path / "adapted")
    assert not (tmp_path / "adapted" / OUT_OF_FOLD_FILE).exists()
    assert read_manifest(tmp_path / "adapted")["adapted"]["scale"] == shifts.scale
    assert stated_scale(tmp_path / "adapted") == shifts.scale


def test_without_good_records_of_the_training_the_scale_is_unknown(folder: Path) -> None:
    (folder / OUT_OF_FOLD_FILE).write_bytes(b"no parquet")
    with pytest.raises(ModelError, match=r"out_of_fold\.parquet cannot be read"):
        stated_scale(folder)
    (folder / TRAINING_FILE).unlink()
    assert stated_scale(folder) is None
