"""The shares of the features, from the trees alone, are those that LightGBM gives."""

from __future__ import annotations

import re

import lightgbm as lgb
import numpy as np
import pytest

from tests.samples import slow
from tile_oracle.errors import ModelError
from tile_oracle.model.forest import Forest
from tile_oracle.model.model_folder import read_booster_text
from tile_oracle.model.store import shipped_models
from tile_oracle.model.tree_shares import ScoreShares, explainable

RANDOM = np.random.default_rng(5)


def trained(trees: int = 30, **settings: object) -> lgb.Booster:
    """A model of 6 features with missing values; features 4 and 5 are rounded."""
    rows = RANDOM.normal(size=(800, 6))
    rows[:, 4:] = np.rint(rows[:, 4:])
    rows[RANDOM.random(rows.shape) < 0.1] = np.nan
    label = np.nansum(rows[:, :3], axis=1) * np.where(np.isnan(rows[:, 4]), 2, rows[:, 4])
    params = {"verbosity": -1, "num_leaves": 31, "min_child_samples": 2, "seed": 1, "num_threads": 1}
    return lgb.train({**params, **settings}, lgb.Dataset(rows, label), trees)


def assert_equal_to_lightgbm(text: str, first: np.ndarray, second: np.ndarray) -> None:
    forest = Forest.from_text(text)
    shares, score, other = ScoreShares(forest).differences(first, second)
    booster = lgb.Booster(model_str=text)
    of_first, of_second = (booster.predict(rows, pred_contrib=True) for rows in (first, second))
    assert np.abs(shares).max() > 1e-3
    np.testing.assert_allclose(shares, (of_second - of_first)[:, :-1], atol=1e-9)
    np.testing.assert_allclose(score, booster.predict(first, raw_score=True), atol=1e-9)
    np.testing.assert_allclose(other, booster.predict(second, raw_score=True), atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_leaves": 4}, {"zero_as_missing": True}, {"use_missing": False}, {"objective": "poisson"}],
    ids=str,
)
def test_shares_are_those_of_lightgbm(settings: dict[str, object]) -> None:
    if settings.get("objective") == "poisson":
        booster = lgb.train(
            {"objective": "poisson", "verbosity": -1, "num_threads": 1},
            lgb.Dataset(RANDOM.normal(size=(300, 6)), RANDOM.poisson(3, 300)),
            5,
        )
    else:
        booster = trained(**settings)
    rows = RANDOM.normal(size=(20, 6))
    rows[:, 4:] = np.rint(rows[:, 4:])
    rows[3:7, 2] = np.nan
    rows[5, 4] = 0.0
    assert_equal_to_lightgbm(booster.model_to_string(), rows[:10], rows[10:])


def test_a_tree_of_one_leaf_adds_its_value_to_the_score() -> None:
    booster = trained(trees=1, min_child_samples=500)
    forest = Forest.from_text(booster.model_to_string())
    assert forest.num_leaves.tolist() == [1]
    rows = RANDOM.normal(size=(2, 6))
    shares, score, _ = ScoreShares(forest).differences(rows, rows[::-1])
    assert not shares.any()
    np.testing.assert_allclose(score, booster.predict(rows, raw_score=True))


@pytest.mark.parametrize("model", slow("grouped_conv_forward_bf16_gfx950", "gemm_bf16_sm_90"))
def test_shares_of_a_shipped_model_are_those_of_lightgbm(model: str) -> None:
    name = next((shipped_models() / model).glob("model_*.lgbm.*")).name
    _, text = read_booster_text(shipped_models() / model, name.split("_", 1)[1].split(".")[0])
    features = len(Forest.from_text(text).feature_names)
    rows = 50.0 * RANDOM.random((6, features))
    assert_equal_to_lightgbm(text, rows[:3], rows[3:])


def test_a_forest_of_categories_or_without_numbers_of_rows_is_not_explained() -> None:
    rows = RANDOM.integers(0, 6, size=(300, 1)).astype(float)
    data = lgb.Dataset(rows, np.isin(rows[:, 0], (1, 4)).astype(float), categorical_feature=[0])
    booster = lgb.train({"verbosity": -1, "min_data_per_group": 1, "cat_smooth": 0.1}, data, 2)
    text = booster.model_to_string()
    assert not explainable(Forest.from_text(text))
    whole = trained(trees=2).model_to_string()
    assert explainable(Forest.from_text(whole))
    assert not explainable(Forest.from_text(re.sub("leaf_count=.*\n", "", whole)))
    with pytest.raises(ModelError, match="categorical"):
        ScoreShares(Forest.from_text(text))
