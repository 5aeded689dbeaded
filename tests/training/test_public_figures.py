"""Metrics on public gfx950 measurements. Skipped if these are not available (tests/measured_tables.py)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tile_oracle.evaluation.evaluate import evaluate
from tile_oracle.features.groups import group_codes
from tile_oracle.model.store import read_json
from tile_oracle.pickers.of_records import read_picks
from tile_oracle.record.final import problems_of
from tile_oracle.training.cross_validation import check, cross_validate
from tile_oracle.training.fit import fit
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train
from tile_oracle.training.training_rows import training_rows

SHIPPED = Path(__file__).parents[2] / "models" / "grouped_conv_forward_bf16_gfx950"


def test_the_metrics_of_the_published_model(public_dev: pd.DataFrame, published_picks: Path) -> None:
    found = evaluate("published", public_dev, read_picks(published_picks, problems_of(public_dev))[0])
    figures = {name: round(found.headlines[name].value, 2) for name in ("mean", "median", "P10", "min")}
    assert figures == {"mean": 92.76, "median": 96.72, "P10": 78.56, "min": 65.16}
    assert found.efficiency.top_1_percent == pytest.approx(16.0, abs=0.05)
    assert found.efficiency.covered == 119


def test_trained_on_the_training_file_alone(public_training: pd.DataFrame, public_dev: pd.DataFrame) -> None:
    ranker = fit(recipe_named("physical"), training_rows(public_training).table, "gfx950")
    rows = training_rows(public_dev).table
    rankings = rows[["problem", "kernel"]].assign(predicted_tflops=ranker.tflops(rows, group_codes(rows)))
    found = evaluate("physical", public_dev, rankings)
    assert found.headlines["mean"].value >= 98.3
    assert found.headlines["P10"].value >= 95.0
    assert found.efficiency.measure_top_percent[2] >= 99.6


@pytest.mark.parametrize(("grouping", "mean", "p10"), [("problem", 99.15, 97.5), ("family", 98.9, 96.5)])
def test_the_shipped_model_cross_validated_again(
    grouping: str, mean: float, p10: float, public_training: pd.DataFrame, public_dev: pd.DataFrame
) -> None:
    rows = training_rows(pd.concat([public_training, public_dev], ignore_index=True)).table
    table = cross_validate(recipe_named("physical"), rows, "gfx950", grouping=grouping).table
    found = check(rows, table, grouping, 5).efficiency
    assert (found.mean_percent or 0) >= mean
    assert (found.p10_percent or 0) >= p10
    stored = read_json(SHIPPED / "cv_metrics_physical.json")[f"by_{grouping}"]
    assert found.mean_percent == pytest.approx(stored["mean_percent"], abs=0.02)


def test_the_shipped_trees_are_made_again_from_the_public_rows(
    public_training: pd.DataFrame, public_dev: pd.DataFrame, tmp_path: Path
) -> None:
    records = pd.concat([public_training, public_dev], ignore_index=True)
    train(records, "physical", n_splits=2).save(tmp_path / "again")
    trees = "model_correction.lgbm.gz"
    assert (tmp_path / "again" / trees).read_bytes() == (SHIPPED / trees).read_bytes()


def test_compv4_is_three_kernels_with_known_tiles(public_training: pd.DataFrame) -> None:
    aliases = fit(recipe_named("physical"), training_rows(public_training).table, "gfx950").aliases
    tiles = {stands.split("_2d_")[1].split("_")[0]: len(names) for stands, names in aliases.groups().items()}
    assert tiles == {"16x64x128": 2, "32x64x128": 3, "64x64x128": 5}
