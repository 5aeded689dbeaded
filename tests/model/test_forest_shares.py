"""The features' shares of the difference of two scores, compared with Shapley's formula over all orders."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import hypothesis.strategies as st
import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import given, settings

from tile_oracle.model.forest import Forest
from tile_oracle.model.forest_shares import forest_shares

NUMBER = st.floats(-2, 2) | st.sampled_from([0.0, 1e-40, float("nan")])
ROW = st.tuples(NUMBER, st.integers(-1, 70) | st.just(float("nan")), NUMBER, NUMBER)


@pytest.fixture(scope="module", params=[{}, {"zero_as_missing": True}, {"use_missing": False}], ids=str)
def booster(request: pytest.FixtureRequest) -> lgb.Booster:
    """Trees of three numbers and a category, any of which may be missing."""
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(size=400), random.integers(0, 50, 400), random.normal(size=(400, 2))])
    label = np.abs(x[:, 0]) + (x[:, 1] % 3) * x[:, 2]
    x[random.random(x.shape) < 0.1] = np.nan
    x[random.random(x.shape) < 0.1] = 0.0
    params: dict[str, Any] = {"verbosity": -1, "num_leaves": 12, "seed": 1, "min_data_per_group": 1}
    params |= {"cat_smooth": 1, **request.param}
    return lgb.train(params, lgb.Dataset(x, label, categorical_feature=[1], params=params), 6)


@settings(max_examples=40)
@given(row=ROW, other=ROW)
def test_shares_are_the_mean_over_all_orders_of_changing_features(
    booster: lgb.Booster, row: tuple[float, ...], other: tuple[float, ...]
) -> None:
    forest = Forest.from_text(booster.model_to_string())
    expected = np.zeros(4)
    for order in permutations(range(4)):
        mixed = np.array([other] * 5, dtype=float)
        for step, feature in enumerate(order):
            mixed[step + 1 :, feature] = row[feature]
        expected[list(order)] += np.diff(np.asarray(booster.predict(mixed))) / 24
    shares, score, other_score = forest_shares(forest, np.array(row, float), np.array(other, float))
    assert shares == pytest.approx(expected, abs=1e-9)
    assert [score, other_score] == pytest.approx(np.asarray(booster.predict([row, other])), abs=1e-9)


def test_a_single_leaf_gives_no_feature_a_share() -> None:
    data = lgb.Dataset(np.arange(8.0)[:, None], np.full(8, 3.0))
    text = lgb.train({"verbosity": -1}, data, 1).model_to_string()
    assert "num_leaves=1\n" in text
    shares, *scores = forest_shares(Forest.from_text(text), np.array([1.0]), np.array([5.0]))
    assert (shares.tolist(), scores) == ([0.0], [3.0, 3.0])
