"""Smaller variants of a recipe: their evaluation, the choice, and that the chosen one is trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.commands import train as train_command
from tile_oracle.errors import ModelError
from tile_oracle.features.groups import group_codes
from tile_oracle.judge.bootstrap import Interval
from tile_oracle.kernel import Kernel
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.ranker import tree_members
from tile_oracle.model.store import read_json
from tile_oracle.model.trees import TreeSettings
from tile_oracle.problem import Problem
from tile_oracle.selector.pick_time import NATIVE_PICKS
from tile_oracle.training.compact import (
    TOLERANCE_POINTS,
    TRADEOFF_FILE,
    Figures,
    Grid,
    PickTimer,
    Row,
    TradeOff,
    Variant,
    choose_compact,
    cut,
    recipe_of,
    smallest_as_good,
    table_lines,
    trade_off,
)
from tile_oracle.training.cross_validation import cross_validate
from tile_oracle.training.cross_validation_metrics import check, picked_efficiencies, selection_of
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import Recipe, TreePart, recipe_named
from tile_oracle.training.train import train
from tile_oracle.training.training_rows import training_rows

PART = TreePart("log_time", "grouped_conv_own_1", TreeSettings(trees=16, num_leaves=7), ensemble=2)
TREES = Recipe("trees", "a few trees", (PART,))
GRID = Grid(leaves=(1, 2), trees=(1, 2, 4), members=(1, 2), features=(1, 4))
TINY = Grid(leaves=(1,), trees=(1, 2), members=(1, 2), features=(1, 4))
"""Fewer than usual."""

CORRECTED = replace(
    recipe_named("default"),
    trees=tuple(
        replace(p, settings=replace(p.settings, trees=16, num_leaves=7), ensemble=2)
        for p in recipe_named("default").trees
    ),
)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return training_rows(make_records(make_problems(16), make_kernels(), noise=0.05)).table


@pytest.fixture(scope="module")
def found(rows: pd.DataFrame) -> TradeOff:
    return trade_off(
        CORRECTED, rows, "gfx950", n_splits=3, time_pick=PickTimer("counted", counted), grid=GRID
    )


def counted(folder: Path, problems: Sequence[Problem], kernels: Sequence[Kernel]) -> float:
    """Returns the number of tree files in the folder as the time of a pick, which shows that each variant is
    timed in its own folder."""
    assert Predictor.load(folder).select(problems[0], kernels) in kernels
    return float(len(list(folder.glob("model_*.lgbm.gz"))))


@pytest.mark.slow
def test_every_variant_is_evaluated_and_timed_in_its_own_folder(found: TradeOff) -> None:
    variants = {row.variant for row in found.rows}
    assert len(variants) == len(found.rows) == 2 * 2 * 3 * 2 + 1
    assert Variant(16, 7, 2, 59) in variants
    assert Variant(4, 4, 1, 15) in variants
    assert Variant(0, 0, 0, 0) in variants
    for row in found.rows:
        assert row.pick_us == row.variant.members
        assert set(row.by) == {"problem", "family"}
    sizes = [row.model_bytes for row in found.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert found.row(Variant(0, 0, 0, 0)).model_bytes == min(sizes)
    one, two = (found.row(Variant(16, 7, members, 59)).model_bytes for members in (1, 2))
    assert one < two < 2 * one


@pytest.mark.parametrize("seed", range(5))
def test_efficiencies_are_those_of_the_selection(seed: int, rows: pd.DataFrame) -> None:
    predicted = np.random.default_rng(seed).integers(1, 5, len(rows)).astype(float)  # many are equal
    selection = selection_of(rows, rows[["problem", "kernel"]].assign(predicted_tflops=predicted))
    expected = selection.sort_values("problem")["efficiency"]
    np.testing.assert_array_equal(picked_efficiencies(rows, predicted), expected)


@pytest.mark.slow
def test_the_smallest_variant_within_the_tolerance_is_chosen(found: TradeOff) -> None:
    best, chosen = found.row(found.best), found.row(found.chosen)
    assert best.by["problem"].mean_gain == best.by["family"].p10_gain == Interval(0.0, 0.0, 0.0)
    for grouping in ("problem", "family"):
        assert chosen.by[grouping].mean_percent >= best.by[grouping].mean_percent - TOLERANCE_POINTS
        assert chosen.by[grouping].p10_percent >= best.by[grouping].p10_percent - TOLERANCE_POINTS
        assert best.by[grouping].mean_percent + best.by[
            "problem" if grouping == "family" else "family"
        ].mean_percent >= max(sum(f.mean_percent for f in row.by.values()) for row in found.rows)
    smaller = [row for row in found.rows if row.model_bytes < chosen.model_bytes]
    for row in smaller:
        assert any(
            min(figures.mean_gain.value, figures.p10_gain.value) < -TOLERANCE_POINTS
            for figures in row.by.values()
        )


def variant_row(
    trees: int, model_bytes: int, *, mean: float = 0.0, p10: float = 0.0, mean_by_family: float = 0.0
) -> Row:
    def figures(mean_gain: float, p10_gain: float) -> Figures:
        return Figures(99 + mean_gain, 97 + p10_gain, *(Interval(g, g, g) for g in (mean_gain, p10_gain)))

    by = {"problem": figures(mean, p10), "family": figures(mean_by_family, 0.0)}
    return Row(Variant(trees, 15, 1, 59), by, model_bytes, pick_us=1e6 / model_bytes)


def test_the_tolerance_holds_for_mean_and_p10_in_every_grouping() -> None:
    best = variant_row(8, 800)
    just = variant_row(7, 700, mean=-0.1, p10=-0.1)
    rows = [
        best,
        just,
        variant_row(6, 600, mean=-0.11),
        variant_row(5, 500, p10=-0.11),
        variant_row(4, 400, mean_by_family=-0.11),
    ]
    assert smallest_as_good(rows) == just.variant
    assert smallest_as_good([best, *rows[2:]]) == best.variant
    assert smallest_as_good([*rows, variant_row(3, 700)]) == Variant(3, 15, 1, 59)  # as large: fewer trees


@pytest.mark.parametrize("variant", [Variant(4, 7, 1, 59), Variant(8, 4, 2, 15), Variant(0, 0, 0, 0)])
@pytest.mark.parametrize("recipe", [TREES, CORRECTED], ids=["trees", "corrected"])
def test_a_truncated_training_equals_a_training_of_that_size(
    variant: Variant, recipe: Recipe, rows: pd.DataFrame
) -> None:
    if not variant.trees and recipe is TREES:
        return
    shape = replace(variant, trees=16, members=2) if variant.trees else Variant(16, 7, 2, 59)
    long = fit(recipe_of(recipe, shape), rows, "gfx950")
    own = fit(recipe_of(recipe, variant), rows, "gfx950")
    groups = group_codes(rows)
    np.testing.assert_array_equal(cut(long, recipe, variant).tflops(rows, groups), own.tflops(rows, groups))
    for member in tree_members(own):
        assert [booster.num_trees() for booster in member.boosters] == [variant.trees] * variant.members
        assert len(member.feature_names) == variant.features


@pytest.mark.slow
def test_metrics_equal_cross_validation_of_the_chosen_recipe(found: TradeOff, rows: pd.DataFrame) -> None:
    for grouping, figures in found.row(found.chosen).by.items():
        table = cross_validate(found.recipe, rows, "gfx950", 3, grouping).table
        efficiency = check(rows, table, grouping, 3).efficiency
        assert efficiency.mean_percent == pytest.approx(figures.mean_percent, abs=1e-9)
        assert efficiency.p10_percent == pytest.approx(figures.p10_percent, abs=1e-9)


@pytest.mark.slow
def test_the_choice_does_not_depend_on_pick_times(rows: pd.DataFrame) -> None:
    def slow_when_small(folder: Path, problems: Sequence[Problem], kernels: Sequence[Kernel]) -> float:
        return 1e6 - counted(folder, problems, kernels)

    first, again = (
        trade_off(TREES, rows, "gfx950", 2, time_pick=PickTimer("made up", timer), grid=TINY)
        for timer in (counted, slow_when_small)
    )
    assert again.chosen == first.chosen
    assert again.recipe == first.recipe
    assert [replace(row, pick_us=0) for row in again.rows] == [replace(row, pick_us=0) for row in first.rows]
    assert again.rows != first.rows


@pytest.mark.slow
def test_a_compact_training_stores_the_choice(tmp_path: Path) -> None:
    records = make_records(make_problems(12), make_kernels(), noise=0.05)
    said: list[str] = []
    model = train(
        records,
        TREES,
        n_splits=2,
        effort=Effort(0, 1, said.append),
        choose=partial(choose_compact, grid=TINY),
    )
    model.save(tmp_path / "m")
    manifest = read_json(tmp_path / "m" / "train_manifest.json")
    tradeoff = json.loads((tmp_path / "m" / TRADEOFF_FILE).read_text())
    chosen = manifest["compact"]["chosen"]
    assert tradeoff["chosen"] == chosen
    assert (tradeoff["pick_candidates"], tradeoff["pick_engine"]) == (10, "python")
    assert len(tradeoff["variants"]) == 2 * 2 * 1 * 2
    assert all(v["pick_us"] > 0 and v["model_bytes"] > 0 for v in tradeoff["variants"])
    assert manifest["total_n_estimators"] == chosen["trees"] * chosen["members"]
    loaded = Predictor.load(tmp_path / "m")
    assert len(loaded.spec.feature_names) == chosen["features"]
    assert manifest["compact"]["model_bytes"] <= manifest["compact"]["largest_model_bytes"]
    cv = read_json(tmp_path / "m" / "cv_metrics_log_time.json")
    assert cv["by_problem"]["mean_percent"] == pytest.approx(
        manifest["compact"]["cv_mean_percent"]["problem"]
    )
    assert any("best" in line for line in said)
    assert any("chosen" in line for line in said)
    assert sum(line.startswith("sizes: ") for line in said) == 2
    plain = train(records, TREES, n_splits=2)
    plain.save(tmp_path / "m")
    assert not (tmp_path / "m" / TRADEOFF_FILE).exists()  # not left by another model


@pytest.mark.slow
def test_the_table_shows_the_best_the_chosen_and_what_no_smaller_one_beats(found: TradeOff) -> None:
    lines = list(table_lines(found))
    assert lines[0] == "picks among 10 kernels, timed in counted"
    assert "bytes" in lines[1]
    assert any(line.endswith("chosen") and str(found.chosen) in line for line in lines)
    assert any(str(found.best) in line and " best" in line for line in lines)
    assert f"{len(found.rows)} variants" in lines[-1]
    assert len(lines) < len(found.rows)


def test_a_recipe_without_trees_is_a_one_line_error(rows: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="picks without trees"):
        trade_off(recipe_named("physical"), rows, "gfx950")
    one = rows[rows["problem"] == rows["problem"].iloc[0]]
    with pytest.raises(ModelError, match="needs at least two"):
        trade_off(TREES, one, "gfx950")
    records = make_records(make_problems(4), make_kernels())
    train(records, TREES, n_splits=2).save(tmp_path / "old")
    with pytest.raises(ModelError, match="none can be chosen"):
        train(records, TREES, n_splits=2, warm_start=tmp_path / "old", choose=choose_compact)


@pytest.mark.slow
def test_the_command_times_picks_in_native_code(rows: pd.DataFrame) -> None:
    said: list[str] = []
    search = train_command._smaller(Effort(report=said.append))
    assert said == []
    assert isinstance(search, partial)
    found = partial(search, grid=TINY)(TREES, rows, "gfx950", 2, Effort())
    assert search.keywords == {"time_pick": NATIVE_PICKS}
    assert json.loads(found.files[TRADEOFF_FILE])["pick_engine"] == "native"
