"""The shipped models of the H200: what their folders say of them can be made again from what lies in them.

TILE_ORACLE_RETRAIN=1 trains them again, which takes some minutes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import lightgbm
import pandas as pd
import pytest

from harness.data_files import data_folder
from harness.heuristic.evaluate import rank_records
from harness.heuristic.predictor import Predictor, find_model
from harness.heuristic.recipe import recipe_named
from harness.heuristic.train import train
from harness.oracle import final_measurements, find_oracles
from harness.problem import DIRECTIONS
from harness.problem_set import load_problem_set
from harness.record.dataset import read_rows
from harness.record.merge import merge_records
from harness.selection import select, summarise
from harness.session.models import without_refused

PUBLISHED_VOLUME = {"forward": 48_845, "bwd_data": 18_773, "bwd_weight": 34_900}
"""Measurements behind the published models."""

FIGURES = {
    "bwd_data": (97.3, 100.0, 93.0),
    "bwd_weight": (97.9, 100.0, 94.2),
}
"""Mean, median and P10 over the validation set, in percent, to 0.1."""


@pytest.fixture(params=DIRECTIONS)
def direction(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(direction: str) -> Path:
    return data_folder("models") / f"grouped_conv_{direction}_bf16_sm_90"


def oracle(folder: Path, direction: str) -> pd.DataFrame:
    (path,) = folder.glob(f"*/{direction}_validation_300/default.parquet")
    return merge_records([read_rows(path)])[0]


def test_it_is_the_one_that_is_found(direction: str, folder: Path) -> None:
    assert find_model(direction, "bf16", "sm_90") == folder


def test_nothing_of_the_validation_set_was_trained_on_and_all_of_it_was_measured(
    direction: str, folder: Path
) -> None:
    training = merge_records([read_rows(folder / "training.parquet")])[0]
    ids = {problem.id for problem in load_problem_set(f"{direction}_validation_300").problems}
    assert not set(training["problem"]) & ids
    recorded = oracle(folder, direction)
    assert set(recorded["problem"]) == ids
    both = pd.concat([training, recorded])
    assert set(both["status"]) <= {"ok", "noisy", "unsupported"}
    assert set(both.loc[both["status"] == "ok", "check"]) == {"full"}
    assert len(both.drop_duplicates(["problem", "kernel"])) > 3 * PUBLISHED_VOLUME[direction]


@pytest.mark.parametrize("direction", FIGURES)
def test_its_picks_are_as_good_as_is_said(direction: str, folder: Path) -> None:
    """Of forward the second command of README says it: tests/test_docs.py."""
    final = final_measurements(oracle(folder, direction))
    rankings = without_refused(rank_records(Predictor.load(folder), final), final, "sm_90")
    problems = load_problem_set(f"{direction}_validation_300").problems
    found = summarise(select(problems, final, find_oracles(final), rankings))
    figures = (found.mean_percent, found.median_percent, found.p10_percent)
    assert figures == pytest.approx(FIGURES[direction], abs=0.05)


@pytest.mark.skipif(not os.environ.get("TILE_ORACLE_RETRAIN"), reason="TILE_ORACLE_RETRAIN=1 runs it")
def test_its_records_make_it_again_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "train_manifest.json").read_text())
    if manifest["lightgbm_version"] != lightgbm.__version__:
        pytest.skip(f"made with lightgbm {manifest['lightgbm_version']}, here is {lightgbm.__version__}")
    training = merge_records([read_rows(folder / "training.parquet")])[0]
    train(training, recipe_named("launch"), n_splits=2).save(tmp_path / "again")
    for name in ("model_lambdarank.lgbm.gz", "model_log_efficiency.lgbm.gz", "code_facts.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name
