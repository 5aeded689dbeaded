"""`train` without --recipe: the recipe that does best on held-out families of the user's records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.features.groups import group_codes
from tile_oracle.training import recipe_choice
from tile_oracle.training.cross_validation import CrossValidation
from tile_oracle.training.recipe import Recipe
from tile_oracle.training.recipe_choice import Round, choose_recipe
from tile_oracle.training.training_rows import training_rows

NAMES = ("physical", "lambdarank", "log_time")


@pytest.fixture
def rows() -> pd.DataFrame:
    return training_rows(make_records(make_problems(48), make_kernels())).table


class Judge:
    """Cross-validation with known predictions: the larger a recipe's error, the worse its picks."""

    def __init__(self, errors: dict[str, float | None]) -> None:
        self.errors = errors
        self.calls: list[tuple[str, frozenset[str], int, str]] = []

    def __call__(
        self, recipe: Recipe, rows: pd.DataFrame, arch: str, n_splits: int, grouping: str, *rest: object
    ) -> CrossValidation:
        self.calls.append((recipe.name, frozenset(rows["problem"]), n_splits, grouping))
        error = self.errors[recipe.name]
        if error is None:
            raise ModelError("cannot be trained")
        noise = np.random.default_rng(0).standard_normal(len(rows))
        predicted = rows["tflops"] * np.exp(error * noise)
        return CrossValidation(
            rows[["problem", "kernel"]].assign(predicted_tflops=predicted, fold=0), grouping, n_splits
        )


def judged(monkeypatch: pytest.MonkeyPatch, **errors: float | None) -> Judge:
    judge = Judge(errors)
    monkeypatch.setattr(recipe_choice, "cross_validate", judge)
    return judge


def test_the_best_recipe_on_held_out_families_is_chosen(
    rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = judged(monkeypatch, physical=0.5, lambdarank=0.05, log_time=0.2)
    found = choose_recipe(rows, "gfx950", names=NAMES, rounds=(Round(0.5, 2, 2), Round(1.0, 3, 1)))
    assert found.recipe.name == "lambdarank"
    assert [[one.recipe for one in result.scores] for result in found.rounds] == [
        ["lambdarank", "log_time", "physical"],
        ["lambdarank", "log_time"],
    ]
    assert {grouping for *_, grouping in judge.calls} == {"family"}
    assert [folds for _, _, folds, _ in judge.calls] == [2, 2, 2, 3, 3]


def test_a_round_has_whole_families_and_the_next_contains_it(
    rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = judged(monkeypatch, physical=0.1, lambdarank=0.2, log_time=0.3)
    choose_recipe(rows, "gfx950", names=NAMES, rounds=(Round(0.6, 2, 2), Round(1.0, 2, 1)))
    first, last = judge.calls[0][1], judge.calls[-1][1]
    assert first < last == frozenset(rows["problem"])
    family = dict(zip(rows["problem"], group_codes(rows, "family"), strict=True))
    assert not {family[name] for name in first} & {family[name] for name in last - first}


def test_differences_are_paired_and_equal_recipes_keep_their_order(
    rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(monkeypatch, physical=0.2, lambdarank=0.2, log_time=0.2)
    (result,) = choose_recipe(rows, "gfx950", names=NAMES, rounds=(Round(1.0, 2, 1),)).rounds
    assert [one.recipe for one in result.scores] == list(NAMES)
    assert [(one.behind_points, one.error_points) for one in result.scores] == [(0.0, 0.0)] * 3


def test_recipes_that_cannot_take_part_are_named_with_their_reason(
    rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(monkeypatch, physical=None, lambdarank=0.2, log_time=0.1, launch=None)
    found = choose_recipe(rows, "gfx950", names=(*NAMES, "launch"))
    assert found.recipe.name == "log_time"
    assert found.left_out["physical"] == "cannot be trained"
    assert found.left_out["launch"] == "cannot be trained"
    with_others = choose_recipe(rows, "gfx950", names=NAMES, trees_only=True)
    assert "auxiliary" in with_others.left_out["physical"]
    judged(monkeypatch, physical=None, lambdarank=None, log_time=None)
    with pytest.raises(ModelError, match="no recipe can be trained"):
        choose_recipe(rows, "gfx950", names=NAMES)


def test_one_family_leaves_nothing_to_compare(rows: pd.DataFrame) -> None:
    one = rows[rows["problem"] == rows["problem"].iloc[0]]
    found = choose_recipe(one, "gfx950", names=NAMES)
    assert (found.recipe.name, found.rounds) == ("physical", ())


@pytest.mark.slow
def test_the_command_compares_recipes_and_the_manifest_has_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = dict.fromkeys(recipe_choice.CANDIDATES, 3.0)
    judged(monkeypatch, **{**worse, "log_time": 0.0})
    few = make_records(make_problems(4), make_kernels()).drop(columns="time")
    few.to_parquet(tmp_path / "few.parquet")
    words = ["train", str(tmp_path / "few.parquet"), "--folds", "2", "-o"]
    assert main([*words, str(tmp_path / "compared")]) == 0
    printed = capsys.readouterr().out
    assert "chosen" in printed
    assert "recipe log_time" in printed
    manifest = json.loads((tmp_path / "compared" / "train_manifest.json").read_text())
    assert manifest["recipe_choice"]["chosen"] == "log_time"
    assert len(manifest["recipe_choice"]["rounds"]) == 3
    assert main([*words, str(tmp_path / "named"), "--recipe", "lambdarank"]) == 0
    assert "recipe_choice" not in json.loads((tmp_path / "named" / "train_manifest.json").read_text())
