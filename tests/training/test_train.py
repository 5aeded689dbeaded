"""Training: which rows are used, which are held out, and that equal seeds give equal bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.errors import ModelError
from tile_oracle.features.groups import group_codes
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.trees import TARGETS, TreeData, TreeSettings, grow
from tile_oracle.training.cross_validation import cross_validate, out_of_fold
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import RECIPES, Recipe, TreePart, recipe_named, suited_recipe
from tile_oracle.training.train import train
from tile_oracle.training.training_rows import training_rows

FEW = TreeSettings(trees=30)


def few_trees(name: str) -> Recipe:
    recipe = recipe_named(name).with_trees(30)
    parts = tuple(TreePart(p.target, p.schema, FEW, min(p.ensemble, 2), p.near_best) for p in recipe.trees)
    return Recipe(recipe.name, recipe.meaning, parts, recipe.weights, recipe.physical)


def with_targets(recipe: Recipe, *targets: str) -> Recipe:
    """Members that predict, beside those that pick: published models have them."""
    more = (replace(recipe.trees[0], target=name) for name in targets)
    return replace(recipe, trees=(*recipe.trees, *more), weights=recipe.picking_weights)


def picked_efficiency(table: pd.DataFrame, records: pd.DataFrame) -> float:
    joined = table.merge(records[["problem", "kernel", "tflops"]], on=["problem", "kernel"])
    picked = joined.loc[joined.groupby("problem")["predicted_tflops"].idxmax()].set_index("problem")["tflops"]
    return float((picked / joined.groupby("problem")["tflops"].max()).mean())


@pytest.mark.slow
def test_every_recipe_learns_the_rule_better_than_a_fixed_choice(records: pd.DataFrame) -> None:
    rows = training_rows(records.assign(vgprs=128)).table
    best_fixed = (
        (records["tflops"] / records.groupby("problem")["tflops"].transform("max"))
        .groupby(records["kernel"])
        .mean()
        .max()
    )
    for name in (name for name, recipe in RECIPES.items() if recipe.network is None):
        table = cross_validate(few_trees(name), rows, "gfx950", n_splits=3).table
        assert picked_efficiency(table, records) > best_fixed, name


@pytest.mark.slow
def test_the_physical_model_extrapolates_its_rule(records: pd.DataFrame) -> None:
    rows = training_rows(records).table
    table = cross_validate(Recipe("terms", "", physical=True), rows, "gfx950").table
    assert picked_efficiency(table, records) > 0.99
    joined = table.merge(records, on=["problem", "kernel"])
    assert np.median(np.abs(joined["predicted_tflops"] / joined["tflops"] - 1)) < 0.02


def test_held_out_problems_are_predicted_by_a_model_trained_without_them(records: pd.DataFrame) -> None:
    rows = training_rows(records).table
    table = cross_validate(few_trees("log_time"), rows, "gfx950", n_splits=4).table
    fold_of = table.groupby("problem")["fold"].first()
    assert set(fold_of) == {0, 1, 2, 3}
    assert (table.groupby("problem")["fold"].nunique() == 1).all()
    held = rows["problem"].map(fold_of) == 2
    alone = fit(few_trees("log_time"), rows[~held], "gfx950")
    again = alone.tflops(rows[held], pd.factorize(rows.loc[held, "problem"])[0])
    expected = table[table["fold"] == 2].set_index(["problem", "kernel"])["predicted_tflops"]
    found = pd.Series(again, index=pd.MultiIndex.from_frame(rows.loc[held, ["problem", "kernel"]]))
    assert found.reindex(expected.index).to_numpy() == pytest.approx(expected.to_numpy())


@pytest.mark.parametrize(
    ("op", "arch", "has_code", "several", "name"),
    [
        ("grouped_conv", "gfx950", True, False, "physical"),
        ("grouped_conv", "gfx950", False, False, "physical"),
        ("grouped_conv", "sm_90", True, False, "launch"),
        ("grouped_conv", "sm_90", False, False, "lambdarank"),
        ("grouped_conv", "cpu", True, False, "lambdarank"),
        ("gemm", "cpu", True, True, "lambdarank"),
        ("gemm", "sm_90", True, False, "two_orders"),
        ("gemm", "sm_90", True, True, "network"),
        ("gemm", "gfx950", True, False, "lambdarank"),
        ("attention", "sm_90", False, True, "lambdarank"),
    ],
)
def test_the_suited_recipe_of_an_operation_and_architecture(
    op: str, arch: str, has_code: bool, several: bool, name: str
) -> None:
    assert suited_recipe(op, arch, has_code=has_code, several=several) == name


def test_one_problem_cannot_be_cross_validated() -> None:
    records = make_records(make_problems(1), make_kernels())
    with pytest.raises(ModelError, match="needs at least two"):
        out_of_fold(records, "gfx950")
    model = train(records, few_trees("log_time"))
    assert "needs at least two" in model.unchecked
    assert model.checks == ()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(records: pd.DataFrame, tmp_path: Path) -> None:
    for folder, seed, threads in (("a", 0, 1), ("b", 0, 2), ("c", 1, 1)):
        train(records, few_trees("physical"), effort=Effort(seed, threads), n_splits=2).save(
            tmp_path / folder
        )
    names = sorted(
        p.name for p in (tmp_path / "a").iterdir() if p.suffix == ".gz" or p.name.startswith("physical")
    )
    assert names == ["model_correction.lgbm.gz", "physical_time.json"]
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names)
    assert (tmp_path / "a" / names[0]).read_bytes() != (tmp_path / "c" / names[0]).read_bytes()


@pytest.mark.slow
def test_progress_and_figures_of_both_groupings(records: pd.DataFrame, tmp_path: Path) -> None:
    said: list[str] = []
    model = train(
        records,
        with_targets(recipe_named("published").with_trees(200), "latency", "bandwidth"),
        effort=Effort(report=said.append),
    )
    model.save(tmp_path / "m")
    assert any("fold 1 of 5" in line for line in said)
    assert {check.grouping for check in model.checks} == {"problem", "family"}
    written = {p.name for p in (tmp_path / "m").iterdir()}
    for target in ("tflops", "latency", "bandwidth"):
        assert {
            f"model_{target}.lgbm.gz",
            f"cv_metrics_{target}.json",
            f"feature_importances_{target}.json",
        } <= written
    manifest = json.loads((tmp_path / "m" / "train_manifest.json").read_text())
    published = "warm_start_from prev_n_estimators new_n_estimators total_n_estimators data_rows valid_rows"
    assert {*published.split(), "unique_shapes", "timestamp"} <= set(manifest)
    assert (manifest["unique_shapes"], manifest["valid_rows"]) == (40, 400)
    spec = json.loads((tmp_path / "m" / "feature_spec.json").read_text())
    assert spec["log_targets"] == ["tflops", "latency", "bandwidth"]
    assert len(spec["feature_names"]) == 97
    loaded, problem, kernels = Predictor.load(tmp_path / "m"), make_problems(40)[3], make_kernels()
    tflops = loaded.predict(problem, kernels)
    latency = loaded.predict(problem, kernels, "latency")
    bandwidth = loaded.predict(problem, kernels, "bandwidth")
    assert problem.tflops(1.0) / latency == pytest.approx(tflops, rel=0.3)
    assert problem.bytes / (latency * 1e6) == pytest.approx(bandwidth, rel=0.3)
    assert set(TARGETS) >= {"tflops", "latency", "bandwidth"}


@pytest.mark.slow
def test_scores_have_no_regression_metrics(records: pd.DataFrame) -> None:
    for target, has in (("log_time", True), ("lambdarank", False)):
        for found in train(records, few_trees(target), n_splits=2).checks:
            assert (found.r2 is not None, found.rmse_log is not None) == (has, has)
            assert (found.efficiency.mean_percent or 0.0) > 50


def test_a_warm_start_adds_trees_and_records_its_lineage(records: pd.DataFrame, tmp_path: Path) -> None:
    train(records, few_trees("log_time"), n_splits=2).save(tmp_path / "old")
    more = make_records(make_problems(30, seed=5), make_kernels(), seed=5)
    model = train(more, few_trees("log_time"), warm_start=tmp_path / "old", warm_trees=20)
    assert model.manifest["warm_start_from"] == "old"
    assert (model.manifest["prev_n_estimators"], model.manifest["new_n_estimators"]) == (30, 20)
    older = model.manifest["warm_start_manifest"]
    assert older["unique_shapes"] == len(older["problems"]) == 40
    assert not {"kernels", "files"} & older.keys(), "nothing reads them, and they are most of it"
    assert "may have seen" in model.unchecked
    other = Recipe("other", "", (TreePart("log_time", "published", FEW),))
    with pytest.raises(ModelError, match="features are not those of grouped_conv_97"):
        train(more, other, warm_start=tmp_path / "old")
    with pytest.raises(ModelError, match="trained for arch gfx950"):
        train(more.assign(arch="gfx942"), few_trees("log_time"), warm_start=tmp_path / "old")


def trees_of(booster: lgb.Booster) -> list[str]:
    """The text of every tree, without its number."""
    text = booster.model_to_string(num_iteration=-1).split("\nend of trees")[0]
    return [tree.partition("\n")[2].rstrip() for tree in text.split("\nTree=")[1:]]


def test_trees_do_not_depend_on_the_number_of_threads() -> None:
    """Also where a sum over the rows is not exact, since their weights differ by many powers of 2."""
    random = np.random.default_rng(0)
    features, groups = random.normal(size=(12_000, 8)), np.repeat(np.arange(600), 20)
    label = features[:, 0] + np.sin(9 * features[:, 1])
    data = TreeData(features, label, 10.0 ** random.uniform(-12, 0, len(label)), groups)
    settings, names = TreeSettings(trees=5, num_leaves=31), [f"f{number}" for number in range(8)]
    one, more = (grow(TARGETS["log_time"], data, settings, 0, threads, names) for threads in (1, 3))
    assert trees_of(one) == trees_of(more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "targets"), [("published", ("latency", "bandwidth")), ("physical", ("latency",))]
)
def test_a_warm_start_grows_every_member_from_its_own_old_trees(
    records: pd.DataFrame, tmp_path: Path, recipe: str, targets: tuple[str, ...]
) -> None:
    old = train(records, with_targets(few_trees(recipe), *targets), n_splits=2)
    old.save(tmp_path / "old")
    more = make_records(make_problems(30, seed=5), make_kernels(), seed=5)
    grown = train(more, few_trees(recipe), warm_start=tmp_path / "old", warm_trees=20)
    grown.save(tmp_path / "grown")
    loaded = Predictor.load(tmp_path / "grown")
    assert [member.name for member in loaded.ranker.members] == [m.name for m in old.ranker.members]
    assert (loaded.spec.picks, loaded.spec.log_targets) == (old.spec.picks, old.spec.log_targets)
    for before, after in zip(old.ranker.trees, loaded.ranker.trees, strict=True):
        for first, then in zip(before.boosters, after.boosters, strict=True):
            assert len(trees_of(then)) == 50
            assert trees_of(then)[:30] == trees_of(first)
        added = 20 * len(before.boosters)
        assert grown.manifest["n_estimators_of"][before.name] == {"prev": added // 20 * 30, "new": added}
    assert loaded.ranker.physical == old.ranker.physical
    rows = training_rows(more).table
    for member in (m for m in loaded.ranker.members if not m.relative):
        error = np.abs(
            member.log_time(rows, loaded.ranker.hardware, 1) - np.log(rows["latency_ms"].to_numpy())
        )
        assert np.median(error) < 0.5, member.name


@pytest.mark.slow
def test_a_warm_start_refuses_incompatible_recipes(records: pd.DataFrame, tmp_path: Path) -> None:
    train(records, few_trees("published"), n_splits=2).save(tmp_path / "old")
    train(records, Recipe("terms", "", physical=True), n_splits=2).save(tmp_path / "no_trees")
    with pytest.raises(ModelError, match="has no member latency; it has tflops"):
        train(records, with_targets(few_trees("published"), "latency"), warm_start=tmp_path / "old")
    with pytest.raises(ModelError, match="no_trees has no trees to grow"):
        train(records, warm_start=tmp_path / "no_trees")
    assert train(records, warm_start=tmp_path / "old", warm_trees=2).spec.recipe == "published"


@pytest.mark.slow
def test_a_warm_start_keeps_a_target_without_log_transform(records: pd.DataFrame, tmp_path: Path) -> None:
    rows = training_rows(records).table
    recipe = few_trees("published")
    plain = replace(TARGETS["tflops"], logged=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TARGETS, "tflops", plain)
        train(records, recipe, n_splits=2).save(tmp_path / "old")
    model = train(records, recipe, warm_start=tmp_path / "old", warm_trees=20)
    assert model.spec.log_targets == ()
    predicted = model.ranker.tflops(rows, group_codes(rows))
    assert np.median(np.abs(predicted / rows["tflops"].to_numpy() - 1)) < 0.5


def test_pairs_that_failed_once_are_not_trained_on(records: pd.DataFrame) -> None:
    first = records.iloc[0]
    again = records.head(1).assign(status="wrong", latency_ms=None, round=1)
    rows = training_rows(pd.concat([records, again], ignore_index=True))
    pairs = set(zip(rows.table["problem"], rows.table["kernel"], strict=True))
    assert (first["problem"], first["kernel"]) not in pairs
    assert len(rows) == len(records) - 1
    assert rows.left_out == {"wrong": 1, "of pairs that failed another time": 1}
    with pytest.raises(ModelError, match="no ok measurements"):
        training_rows(records.assign(status="timeout"))
    with pytest.raises(ModelError, match="lack the columns latency_ms"):
        training_rows(records.drop(columns="latency_ms"))


def test_records_of_several_kinds_are_refused(records: pd.DataFrame) -> None:
    both = pd.concat([records, records.assign(arch="gfx942")], ignore_index=True)
    with pytest.raises(ModelError, match="choose one with --arch"):
        train(both, few_trees("log_time"))
    with pytest.raises(ModelError, match="no rows of dtype 'fp16'"):
        train(records, few_trees("log_time"), dtype="fp16")
    with pytest.raises(ModelError, match="no recipe 'soup'"):
        train(records, "soup")
