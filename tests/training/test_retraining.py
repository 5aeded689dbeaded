"""Training on a shipped model's records gives its trees again, bit for bit, on any machine.

TILE_ORACLE_RETRAIN=1 trains the H200's models of convolutions, too: some minutes each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import lightgbm
import pandas as pd
import pytest

from tile_oracle.features.code_table import CodeTable
from tile_oracle.files.data_files import data_folder
from tile_oracle.model.model_folder import read_booster_text
from tile_oracle.model.store import CODE_FILE, read_manifest
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.merge import merge_records
from tile_oracle.training.auxiliary_rows import not_of_shapes
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import TrainedModel, train

ASKED = pytest.mark.skipif(not os.environ.get("TILE_ORACLE_RETRAIN"), reason="TILE_ORACLE_RETRAIN=1 runs it")


def shipped(name: str) -> Path:
    folder = data_folder("models") / name
    made_with = read_manifest(folder)["lightgbm_version"]
    if made_with != lightgbm.__version__:
        pytest.skip(f"made with lightgbm {made_with}, here is {lightgbm.__version__}")
    return folder


def recorded(*paths: Path) -> pd.DataFrame:
    return merge_records([read_rows(path) for path in paths])[0]


def trees_of(folder: Path, number: int = 0) -> str:
    """The text of the trees, without LightGBM's parameters, which say how they were computed."""
    return read_booster_text(folder, "lambdarank", number)[1].partition("\nparameters:")[0]


def assert_the_same(again: TrainedModel, folder: Path, out: Path) -> None:
    again.save(out)
    boosters = len(list(folder.glob("model_*.lgbm.gz")))
    assert [trees_of(out, number) for number in range(boosters)] == [
        trees_of(folder, number) for number in range(boosters)
    ]
    for name in (CODE_FILE, "feature_importances_lambdarank.json"):
        if (folder / name).is_file():
            assert (out / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grouped_conv_forward_bf16_cpu", "attention_fwd_bf16_sm_90"])
def test_a_small_model_is_trained_again(name: str, tmp_path: Path) -> None:
    folder = shipped(name)
    training = recorded(folder / "training.parquet")
    code = CodeTable.of(recorded(*folder.glob("*/*/*.parquet"))).over(CodeTable.of(training))
    assert_the_same(
        train(training, recipe_named("lambdarank"), n_splits=2, code=code), folder, tmp_path / "m"
    )


@ASKED
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_grown_model_of_convolutions_is_trained_again(direction: str, tmp_path: Path) -> None:
    folders = {name: shipped(f"grouped_conv_{name}_bf16_sm_90") for name in DIRECTIONS}
    folder = folders[direction]
    training = {name: recorded(one / "training.parquet") for name, one in folders.items()}
    held_out = recorded(*folder.glob(f"nvidia-h200-*/{direction}_validation_300/default.parquet"))
    others = pd.concat([rows for name, rows in training.items() if name != direction], ignore_index=True)
    code = CodeTable.of(held_out)
    also = not_of_shapes(others, held_out)
    train(training[direction], recipe_named("launch"), n_splits=2, also=also, code=code).save(
        tmp_path / "old"
    )
    builds = recorded(*(one / "other_builds.parquet" for one in folders.values()))
    # A folder that was grown earlier than another one knows fewer of the measurements.
    grown_at = json.loads((folder / "train_manifest.json").read_text())["timestamp"]
    builds = builds[builds["time"] <= pd.Timestamp(grown_at)].reset_index(drop=True)
    grown = train(
        training[direction],
        code=code.over(CodeTable.of(training[direction])),
        warm_start=tmp_path / "old",
        warm_trees=300,
        also=not_of_shapes(builds, held_out),
    )
    assert_the_same(grown, folder, tmp_path / "again")
