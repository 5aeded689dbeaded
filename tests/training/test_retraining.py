"""Training on a shipped model's records gives its trees again, bit for bit, on any machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lightgbm as lgb
import pandas as pd
import pytest

from tile_oracle.features.code_table import CodeTable
from tile_oracle.files.data_files import data_folder
from tile_oracle.model.model_folder import read_booster
from tile_oracle.model.ranker import tree_members
from tile_oracle.model.store import CODE_FILE, read_manifest
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.merge import merge_records
from tile_oracle.training.auxiliary_rows import not_of_shapes
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

FEW = 6
"""Trees of a large model that are compared."""


def shipped(name: str) -> Path:
    folder = data_folder("models") / name
    made_with = read_manifest(folder)["lightgbm_version"]
    if made_with != lgb.__version__:
        pytest.skip(f"made with lightgbm {made_with}, here is {lgb.__version__}")
    return folder


def recorded(*paths: Path) -> pd.DataFrame:
    return merge_records([read_rows(path) for path in paths])[0]


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


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_first_trees_of_a_grown_model_are_trained_again(direction: str, tmp_path: Path) -> None:
    """The model's first trees, from its own records and those of other directions, and the first of those by
    which it grew, from records of another compiler. A tree depends on all before it."""
    folders = {name: shipped(f"grouped_conv_{name}_bf16_sm_90") for name in DIRECTIONS}
    folder, own = folders[direction], recorded(folders[direction] / "training.parquet")
    held_out = recorded(*folder.glob(f"nvidia-h200-*/{direction}_validation_300/default.parquet"))
    others = pd.concat(
        [recorded(one / "training.parquet") for name, one in folders.items() if name != direction],
        ignore_index=True,
    )
    recipe, code = recipe_named("launch").with_trees(FEW), CodeTable.of(held_out)
    old = train(own, recipe, n_splits=2, also=not_of_shapes(others, held_out), code=code)
    (member,) = tree_members(old.ranker)
    shipped_trees = [read_booster(folder, "lambdarank", number) for number in range(2)]
    for booster, whole in zip(member.boosters, shipped_trees, strict=True):
        assert trees_of(booster) == trees_of(whole)
    before = read_manifest(folder)["n_estimators_of"]["lambdarank"]["prev"] // 2
    cut = [lgb.Booster(model_str=one.model_to_string(num_iteration=before)) for one in shipped_trees]
    ranker = replace(old.ranker, members=(replace(member, boosters=tuple(cut)),))
    replace(old, ranker=ranker).save(tmp_path / "old")
    builds = recorded(*(one / "other_builds.parquet" for one in folders.values()))
    # A folder that was grown earlier than another one knows fewer of the measurements.
    builds = builds[builds["time"] <= pd.Timestamp(read_manifest(folder)["timestamp"])].reset_index(drop=True)
    grown = train(
        own,
        code=code.over(CodeTable.of(own)),
        warm_start=tmp_path / "old",
        warm_trees=FEW,
        also=not_of_shapes(builds, held_out),
    )
    (member,) = tree_members(grown.ranker)
    for booster, whole in zip(member.boosters, shipped_trees, strict=True):
        assert trees_of(booster, before) == trees_of(whole, before)
