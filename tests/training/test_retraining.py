"""Training on a shipped model's records gives its trees again, bit for bit, on any machine.

TILE_ORACLE_RETRAIN=1 trains the first trees of the models of convolutions, too: a minute or two each.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lightgbm as lgb
import pandas as pd
import pytest

from tests.training import shipped_models
from tests.training.shipped_models import recorded
from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.files.vouched_files import seal_folder
from tile_oracle.model.model_folder import packed_booster, read_booster
from tile_oracle.model.ranker import Ranker
from tile_oracle.model.store import CODE_FILE, booster_file, read_manifest
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train
from tile_oracle.training.training_rows import not_of_shapes

ASKED = pytest.mark.skipif(not os.environ.get("TILE_ORACLE_RETRAIN"), reason="TILE_ORACLE_RETRAIN=1 runs it")
FEW = 6
"""Trees of a large model that are compared."""


def shipped(name: str) -> Path:
    folder = shipped_models.shipped(name)
    made_with = read_manifest(folder)["lightgbm_version"]
    if made_with != lgb.__version__:
        pytest.skip(f"made with lightgbm {made_with}, here is {lgb.__version__}")
    return folder


def trees_of(booster: lgb.Booster, first: int = 0, count: int = FEW) -> list[str]:
    """The text of some trees, without their numbers."""
    text = booster.model_to_string(num_iteration=-1).partition("\nend of trees")[0]
    trees = [tree.partition("\n")[2].rstrip() for tree in text.split("\nTree=")[1:]]
    return trees[first : first + count]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grouped_conv_forward_bf16_cpu", "attention_fwd_bf16_sm_90"])
def test_a_small_model_is_trained_again(name: str, tmp_path: Path) -> None:
    folder = shipped(name)
    training = recorded(folder / "training.parquet")
    code = CodeTable.of(recorded(*folder.glob("*/*/*.parquet"))).over(CodeTable.of(training))
    train(training, recipe_named("lambdarank"), n_splits=2, code=code).save(tmp_path / "m")
    expected, again = (
        trees_of(read_booster(one, "lambdarank"), count=600) for one in (folder, tmp_path / "m")
    )
    assert len(expected) == 600
    assert again == expected
    for name in (CODE_FILE, "feature_importances_lambdarank.json"):
        if (folder / name).is_file():
            assert (tmp_path / "m" / name).read_bytes() == (folder / name).read_bytes(), name


def folder_of(direction: str) -> Path:
    return shipped(f"grouped_conv_{direction}_bf16_sm_90")


def held_out(direction: str) -> pd.DataFrame:
    return recorded(*folder_of(direction).glob(f"nvidia-h200-*/{direction}_validation_300/default.parquet"))


def assert_first_trees(ranker: Ranker, direction: str, first: int = 0) -> None:
    (member,) = ranker.trees
    for number, booster in enumerate(member.boosters):
        whole = read_booster(folder_of(direction), "lambdarank", number)
        assert trees_of(booster, first) == trees_of(whole, first), number


@ASKED
def test_the_first_trees_of_the_model_of_forward_convolutions_are_trained_again() -> None:
    """A tree depends on all before it. The models of the other directions learned from 900 measurements of
    forward problems, too, that have since been given to its validation sets and measured anew."""
    others = [recorded(folder_of(name) / "training.parquet") for name in DIRECTIONS if name != "forward"]
    again = train(
        recorded(folder_of("forward") / "training.parquet"),
        recipe_named("launch").with_trees(FEW),
        n_splits=2,
        also=not_of_shapes(pd.concat(others, ignore_index=True), held_out("forward")),
    )
    assert_first_trees(again.ranker, "forward")


@ASKED
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_first_trees_by_which_a_model_grew_are_trained_again(direction: str, tmp_path: Path) -> None:
    """From records of another compiler, upon the trees that it had."""
    folder, old = folder_of(direction), tmp_path / "old"
    shutil.copytree(folder, old)
    manifest = read_manifest(folder)
    before = manifest["n_estimators_of"]["lambdarank"]["prev"] // 2
    for number in range(2):
        text = read_booster(folder, "lambdarank", number).model_to_string(num_iteration=before)
        (old / booster_file("lambdarank", number)).write_bytes(packed_booster(lgb.Booster(model_str=text)))
    seal_folder(old, ModelError)
    builds = recorded(*(folder_of(name) / "other_builds.parquet" for name in DIRECTIONS))
    # A folder that was grown earlier than another one knows fewer of the measurements.
    builds = builds[builds["time"] <= pd.Timestamp(manifest["timestamp"])].reset_index(drop=True)
    grown = train(
        recorded(folder / "training.parquet"),
        warm_start=old,
        warm_trees=FEW,
        also=not_of_shapes(builds, held_out(direction)),
    )
    assert_first_trees(grown.ranker, direction, before)
