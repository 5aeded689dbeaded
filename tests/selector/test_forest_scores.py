"""Scores of forests equal LightGBM's raw predictions bit for bit: any trees, values and instruction set."""

from __future__ import annotations

import itertools
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.selector.native_scorer import Constant, PerClass, PerKernel, Scorer, available_isas
from tile_oracle.model.model_text import Forest

ROWS = 400
KINDS = ("constant", "kernel", "interaction")
EDGES = np.array([0.0, -0.0, 1e-36, -1e-36, 1e-35, 2e-35, -2e-35, 1e300, -1e300, np.inf, -np.inf, 5e-324])


def training_columns(random: np.random.Generator, columns: int, categorical: int, missing: float) -> Any:
    """The last `categorical` columns hold categories; zeros and NaN are frequent where `missing` is not 0."""
    x = random.normal(size=(ROWS, columns)) * 10.0 ** random.integers(-3, 4, columns)
    x[:, ::3] = np.round(x[:, ::3])
    for column in range(columns - categorical, columns):
        x[:, column] = random.integers(0, 70, ROWS)
    x[random.random(x.shape) < missing] = np.nan
    x[random.random(x.shape) < missing] = 0.0
    return x


def train(x: Any, random: np.random.Generator, categorical: int, trees: int, **params: Any) -> lgb.Booster:
    label = np.nansum(np.sin(x) * random.normal(size=x.shape[1]), axis=1) + 0.1 * random.normal(size=ROWS)
    group = None
    if params.get("objective") == "poisson":
        label = random.integers(0, 2, ROWS)
    elif params.get("objective") == "lambdarank":
        label, group = np.clip(np.round(label + 3), 0, 6), [20] * (ROWS // 20)
    settings_of_all = {
        "verbosity": -1,
        "num_threads": 1,
        "min_data_in_bin": 1,
        "seed": 1,
        "min_data_per_group": 5,
    }
    data = lgb.Dataset(
        x,
        label=label,
        group=group,
        categorical_feature=list(range(x.shape[1] - categorical, x.shape[1])),
        params=settings_of_all | params,
    )
    return lgb.train(settings_of_all | params, data, trees)


def feature_rows(random: np.random.Generator, x: Any, kinds: tuple[str, ...], candidates: int) -> Any:
    """One problem: the features' sources, constants, class values, and the same as rows for LightGBM."""
    sources: list[Any] = []
    constants = np.full(len(kinds), np.nan)
    class_values = {}
    rows = np.empty((candidates, len(kinds)))
    for column, kind in enumerate(kinds):
        # Values that the trees were trained on, and values on and next to the threshold of zero.
        pool = np.concatenate([x[:, column], x[:, column] + 0.5, EDGES, [np.nan, -1.0, -0.5, 3e9, 1e5]])
        if kind == "constant":
            sources.append(Constant())
            constants[column] = random.choice(pool)
            rows[:, column] = constants[column]
            continue
        classes = int(random.choice([1, 2, 5, max(1, candidates // 2), candidates]))
        class_of = random.integers(0, classes, candidates).astype(np.uint32)
        values = random.choice(pool, classes)
        if kind == "kernel":
            sources.append(PerKernel(class_of, values))
        else:
            sources.append(PerClass(class_of, classes))
            class_values[column] = values
        rows[:, column] = values[class_of]
    return sources, constants, class_values, rows


def same_bits(scores: Any, expected: Any) -> bool:
    return bool((np.asarray(scores).view(np.uint64) == np.asarray(expected).view(np.uint64)).all())


def assert_equal_everywhere(boosters: list[lgb.Booster], problem: Any, isas: tuple[str, ...]) -> None:
    sources, constants, class_values, rows = problem
    forests = [Forest.from_text(booster.model_to_string()) for booster in boosters]
    expected = [booster.predict(rows, raw_score=True, num_threads=1) for booster in boosters]
    for isa in isas:
        scorer = Scorer(forests, len(rows), sources, isa)
        assert scorer.isa == isa
        assert same_bits(scorer.score(constants, class_values), expected), isa


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32 - 1),
    leaves=st.sampled_from([2, 3, 7, 31, 120, 300]),
    trees=st.integers(1, 40),
    columns=st.integers(1, 9),
    categorical=st.integers(0, 2),
    missing=st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    how=st.sampled_from(
        [
            {"objective": "regression"},
            {"objective": "regression", "zero_as_missing": True},
            {"objective": "regression", "use_missing": False},
            {"objective": "lambdarank"},
            {"objective": "regression_l1", "max_cat_to_onehot": 1},
            {"objective": "poisson"},
            {"objective": "regression", "boosting": "dart"},
        ]
    ),
    candidates=st.sampled_from([1, 2, 30, 63, 64, 65, 128, 200, 257, 512, 513, 1100]),
)
def test_any_model_and_values(
    seed: int,
    leaves: int,
    trees: int,
    columns: int,
    categorical: int,
    missing: float,
    how: Any,
    candidates: int,
) -> None:
    random = np.random.default_rng(seed)
    categorical = min(categorical, columns)
    x = training_columns(random, columns, categorical, missing)
    booster = train(x, random, categorical, trees, num_leaves=leaves, min_data_in_leaf=1, **how)
    kinds = tuple(random.choice(KINDS, columns))
    assert_equal_everywhere([booster], feature_rows(random, x, kinds, candidates), available_isas())


@pytest.mark.parametrize("candidates", [5, 700])
def test_constant_trees_have_one_leaf(candidates: int) -> None:
    random = np.random.default_rng(0)
    booster = lgb.train({"verbosity": -1}, lgb.Dataset(np.zeros((50, 2)), label=np.full(50, 0.1)), 3)
    assert "num_leaves=1\n" in booster.model_to_string()
    problem = feature_rows(random, np.zeros((4, 2)), ("constant", "interaction"), candidates)
    assert_equal_everywhere([booster], problem, available_isas())


def test_several_forests_share_their_candidates() -> None:
    random = np.random.default_rng(3)
    x = training_columns(random, 6, 1, 0.1)
    boosters = [train(x, random, 1, 20 + i, num_leaves=15 + i, bagging_seed=i) for i in range(4)]
    problem = feature_rows(random, x, ("constant", "kernel", "interaction") * 2, 333)
    assert_equal_everywhere(boosters, problem, available_isas())


def grown_text(random: np.random.Generator, leaves: int, trees: int, columns: int) -> str:
    """A model's text with random trees: larger ones than can be trained in a test."""
    booster = lgb.train(
        {"verbosity": -1}, lgb.Dataset(random.normal(size=(50, columns)), label=np.zeros(50)), 1
    )
    head = booster.model_to_string().partition("tree_sizes=")[0]
    sections = []
    for number in range(trees):
        left, right = np.empty(leaves - 1, dtype=int), np.empty(leaves - 1, dtype=int)
        # Every split takes the place of a leaf: inner node i splits a leaf that is already there.
        place: list[tuple[Any, int]] = []
        for node in range(leaves - 1):
            if node:
                side, parent = place.pop(int(random.integers(len(place))))
                side[parent] = node
            place += [(left, node), (right, node)]
        for leaf, (side, parent) in enumerate(place):
            side[parent] = ~leaf
        columns_of = {
            "split_feature": random.integers(0, columns, leaves - 1),
            "split_gain": np.zeros(leaves - 1),
            "threshold": random.normal(size=leaves - 1),
            "decision_type": random.choice([0, 2, 4, 6, 8, 10], leaves - 1),
            "left_child": left,
            "right_child": right,
            "leaf_value": random.normal(size=leaves),
            "leaf_weight": np.zeros(leaves),
            "leaf_count": np.ones(leaves, dtype=int),
            "internal_value": np.zeros(leaves - 1),
            "internal_weight": np.zeros(leaves - 1),
            "internal_count": np.ones(leaves - 1, dtype=int),
        }
        lines = [f"{key}={' '.join(map(repr, values.tolist()))}" for key, values in columns_of.items()]
        section = [
            f"Tree={number}",
            f"num_leaves={leaves}",
            "num_cat=0",
            *lines,
            "is_linear=0",
            "shrinkage=1",
        ]
        sections.append("\n".join(section) + "\n\n\n")
    sizes = " ".join(str(len(section)) for section in sections)
    return f"{head}tree_sizes={sizes}\n\n{''.join(sections)}end of trees\n\nparameters:\nend of parameters\n"


@pytest.mark.slow
@pytest.mark.parametrize(("leaves", "trees"), [(40_000, 2), (400, 3)])
def test_trees_and_conditions_that_16_bits_cannot_name(leaves: int, trees: int) -> None:
    """Node numbers and conditions of 32 bits are another layout of the same trees. Random trees mix the ways
    to treat missing values, which trained ones do not."""
    random = np.random.default_rng(5)
    booster = lgb.Booster(model_str=grown_text(random, leaves, trees, 6))
    x = random.normal(size=(ROWS, 6))
    for candidates in (40, 600):
        problem = feature_rows(random, x, ("constant", "kernel", *["interaction"] * 4), candidates)
        assert_equal_everywhere([booster], problem, available_isas())


def test_more_leaves_are_reached_than_a_byte_can_name() -> None:
    random = np.random.default_rng(6)
    x = random.normal(size=(ROWS, 3))
    booster = train(x, random, 0, 3, num_leaves=400, min_data_in_leaf=1, learning_rate=1.0)
    rows = np.resize(x, (512, 3))
    class_of = np.arange(512, dtype=np.uint32)
    problem = [PerClass(class_of, 512)] * 3, np.zeros(3), dict(enumerate(rows.T)), rows
    leaves = booster.predict(rows, pred_leaf=True)
    assert max(len(set(leaves[:, tree])) for tree in range(3)) > 256
    assert_equal_everywhere([booster], problem, available_isas())


def test_one_scorer_scores_problem_after_problem() -> None:
    """The memory that a thread keeps holds nothing of earlier problems or other scorers."""
    random = np.random.default_rng(7)
    x = training_columns(random, 5, 1, 0.2)
    booster = train(x, random, 1, 30, num_leaves=31)
    forest = Forest.from_text(booster.model_to_string())
    class_of = random.integers(0, 9, 100).astype(np.uint32)
    sources = [Constant(), Constant(), PerClass(class_of, 9), PerClass(class_of % 3, 3), Constant()]
    one, other = Scorer([forest], 100, sources), Scorer([forest], 100, sources, "scalar")
    for scorer in itertools.islice(itertools.cycle((one, one, other)), 60):
        constants = random.choice(x.ravel(), 5)
        values = {2: random.choice(x[:, 2], 9), 3: random.choice(x[:, 3], 3)}
        rows = np.tile(constants, (100, 1))
        rows[:, 2], rows[:, 3] = values[2][class_of], values[3][class_of % 3]
        assert same_bits(scorer.score(constants, values)[0], booster.predict(rows, raw_score=True))


def test_candidates_that_trees_cannot_distinguish_are_scored_once() -> None:
    random = np.random.default_rng(8)
    x = random.normal(size=(ROWS, 3))
    label = np.sign(x[:, 0]) + np.sign(x[:, 1])
    booster = lgb.train(
        {"verbosity": -1, "num_leaves": 4}, lgb.Dataset(x[:, :2].round() @ np.eye(2, 3), label), 5
    )
    forest = Forest.from_text(booster.model_to_string())
    ids = np.arange(1000, dtype=np.uint32)
    sources = [PerClass(ids % 7, 7), PerKernel(ids % 2, np.array([50.0, 51.0])), PerClass(ids, 1000)]
    scorer = Scorer([forest], 1000, sources)
    assert scorer.distinct == 7  # 50 and 51 are above every threshold, and no tree uses the last
    assert [scorer.reads(feature) for feature in range(3)] == [True, True, False]
