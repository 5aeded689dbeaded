"""Trains LightGBM boosters, deterministically for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features import exact_math
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_minimum
from tile_oracle.features.schemas import work_of

if TYPE_CHECKING:
    import lightgbm as lgb

# ---- The targets of tree models, and how a prediction becomes a time -----------------------------
# An absolute target can be turned into a latency; a relative one only orders the kernels of a problem.
# Every target's score is in natural-log units, lower is faster, so scores of different targets can be
# averaged.

_RELEVANCE_LEVELS = 31
_RELEVANCE_FLOOR = 0.5

LEAST_QUANTITY = 1e-9
"""The lower limit of predicted TFLOPS, milliseconds or GB/s."""


@dataclass(frozen=True)
class Target:
    """`name`: as in the model file's name. `objective`: what LightGBM minimises. `relative`: only the order
    within a problem is fitted. `logged`: the published log1p is applied to the label."""

    name: str
    meaning: str
    objective: str = "regression"
    relative: bool = False
    logged: bool = False

    @property
    def is_score(self) -> bool:
        """Whether predictions are scores without a unit."""
        return self.objective != "regression"

    def unlogged(self) -> Target:
        """Returns the same target, trained on the plain value."""
        return replace(self, logged=False)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("tflops", "log1p of TFLOPS, as published", logged=True),
        Target("latency", "log1p of the latency in ms, as published", logged=True),
        Target("bandwidth", "log1p of GB/s, every tensor moved once, as published", logged=True),
        Target("log_time", "natural log of the latency in ms"),
        Target("correction", "natural log of the latency over the physical model's"),
        Target("log_efficiency", "natural log of TFLOPS over the problem's best", relative=True),
        Target("lambdarank", "order of the kernels (LambdaRank)", objective="lambdarank", relative=True),
    )
}
"""Every tree target by its name."""


def target_named(name: str) -> Target:
    """Raises ModelError listing the known targets."""
    try:
        return TARGETS[name]
    except KeyError:
        raise ModelError(f"no target {name!r}; known: {', '.join(TARGETS)}") from None


def label(target: Target, rows: pd.DataFrame, groups: npt.NDArray[np.int64]) -> Array:
    """Returns the labels of the trees, (rows,). rows need latency_ms; groups: the problem number of each row.

    Not for `correction`, whose label depends on the fitted physical model (training.fit).
    """
    log_time = np.log(rows["latency_ms"].to_numpy(dtype=np.float64))
    if target.name == "log_time":
        return np.asarray(log_time)
    if target.relative:
        log_efficiency = group_minimum(log_time, groups) - log_time
        if target.name == "lambdarank":
            share = (np.exp(log_efficiency) - _RELEVANCE_FLOOR) / (1 - _RELEVANCE_FLOOR)
            return np.asarray(np.rint(np.clip(share, 0, 1) * (_RELEVANCE_LEVELS - 1)))
        return np.asarray(log_efficiency)
    value = _quantity(target, rows, log_time)
    return np.asarray(np.log1p(value) if target.logged else value)


def log_time_of(target: Target, raw: Array, rows: Mapping[str, Any] | pd.DataFrame) -> Array:
    """Returns the trees' raw output as a score: ln(latency in ms) for an absolute target, up to a constant
    per problem for a relative one. Log targets are inverted (expm1)."""
    if target.name in ("log_time", "correction"):
        return raw
    if target.relative:
        return -raw
    value = np.maximum(exact_math.expm1(raw) if target.logged else raw, LEAST_QUANTITY)
    if target.name == "latency":
        return exact_math.log(value)
    work = work_of(rows)
    if target.name == "tflops":
        return np.asarray(exact_math.log(work.flops) - exact_math.log(value * 1e9))
    return np.asarray(exact_math.log(work.bytes) - exact_math.log(value * 1e6))


def _quantity(target: Target, rows: pd.DataFrame, log_time: Array) -> Array:
    latency_ms = np.exp(log_time)
    if target.name == "latency":
        return latency_ms
    work = work_of(rows)
    return np.asarray(
        work.flops / (latency_ms * 1e9) if target.name == "tflops" else work.bytes / (latency_ms * 1e6)
    )


Progress = Callable[[int, int], None]
"""Called with (trees so far, trees in all)."""

_RELEVANCE_GAIN = [float(level) for level in range(64)]
_MIN_CHILD_SHARE = 40
_UNSEEN_SHARE = 8
"""Training repeats one in this many problems without binary metrics."""


@dataclass(frozen=True)
class TreeSettings:
    """How a booster grows. `early_stopping_rounds` 0 means that all `trees` are kept."""

    trees: int = 600
    learning_rate: float = 0.05
    num_leaves: int = 15
    max_depth: int = -1
    min_child_samples: int = 10
    subsample: float = 1.0
    colsample_bytree: float = 0.3
    reg_alpha: float = 0.0
    reg_lambda: float = 0.0
    early_stopping_rounds: int = 0

    def params(self, rows: int, seed: int, threads: int) -> dict[str, Any]:
        """LightGBM's own parameters. Leaves hold fewer rows when there are few rows in all."""
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "max_depth": self.max_depth,
            "min_child_samples": max(1, min(self.min_child_samples, rows // _MIN_CHILD_SHARE)),
            "bagging_fraction": self.subsample,
            "bagging_freq": 1 if self.subsample < 1 else 0,
            "feature_fraction": self.colsample_bytree,
            "lambda_l1": self.reg_alpha,
            "lambda_l2": self.reg_lambda,
            "seed": seed,
            "num_threads": threads,
            "deterministic": True,
            # Sums over rows would be divided by the number of threads, and differ in their last digits.
            "force_col_wise": True,
            "verbosity": -1,
        }


PUBLISHED_SETTINGS = TreeSettings(
    trees=2000,
    learning_rate=0.02,
    num_leaves=255,
    max_depth=15,
    min_child_samples=10,
    subsample=0.85,
    colsample_bytree=0.85,
    reg_alpha=0.05,
    reg_lambda=0.5,
    early_stopping_rounds=50,
)
"""The published training settings."""


@dataclass(frozen=True)
class TreeData:
    """Features, labels, weights and problem numbers of the training rows.

    unseen: the features without binary metrics, if the schema has any.
    """

    features: Array
    label: Array
    weight: Array | None
    groups: npt.NDArray[np.int64]
    unseen: Array | None = None

    def followed_by_unseen(self, seed: int) -> TreeData:
        """Returns the rows, followed by those of some randomly drawn problems again without binary metrics,
        so that the model can predict kernels whose binary is unknown."""
        if self.unseen is None:
            return self
        distinct = np.unique(self.groups)
        count = -(-len(distinct) // _UNSEEN_SHARE)
        again = np.isin(self.groups, np.random.default_rng(seed).permutation(distinct)[:count])
        return TreeData(
            np.concatenate([self.features, self.unseen[again]]),
            np.concatenate([self.label, self.label[again]]),
            None if self.weight is None else np.concatenate([self.weight, self.weight[again]]),
            np.concatenate([self.groups, self.groups[again] + int(self.groups.max(initial=-1)) + 1]),
        )

    def take(self, chosen: npt.NDArray[np.bool_ | np.int64]) -> TreeData:
        """Returns some rows: of a mask, or indices in the wanted order."""
        return TreeData(
            self.features[chosen],
            self.label[chosen],
            None if self.weight is None else self.weight[chosen],
            self.groups[chosen],
            None if self.unseen is None else self.unseen[chosen],
        )

    @property
    def in_order(self) -> TreeData:
        """The rows, problem by problem."""
        return self.take(np.argsort(self.groups, kind="stable"))

    def columns(self, chosen: npt.NDArray[np.bool_ | np.int_]) -> TreeData:
        """Returns the same rows with only these features: a mask, or indices in the wanted order."""
        unseen = None if self.unseen is None else np.ascontiguousarray(self.unseen[:, chosen])
        return replace(self, features=np.ascontiguousarray(self.features[:, chosen]), unseen=unseen)


def grow(
    target: Target,
    data: TreeData,
    settings: TreeSettings,
    seed: int,
    threads: int,
    feature_names: Sequence[str],
    valid: TreeData | None = None,
    init: lgb.Booster | None = None,
    progress: Progress | None = None,
) -> lgb.Booster:
    """Returns one booster. With `valid` and early stopping the best iteration is kept. init: a booster to
    grow further.

    The same data, settings and seed give the same trees for any number of threads.
    """
    import lightgbm as lgb  # not at the top: it is slow to import, and native predictions do not need it

    params = settings.params(len(data.label), seed, threads)
    params["objective"] = target.objective
    if target.objective == "lambdarank":
        params |= {"label_gain": _RELEVANCE_GAIN, "lambdarank_truncation_level": 10}
    train_set = _dataset(data.in_order, target, feature_names)
    callbacks: list[Callable[..., Any]] = []
    valid_sets = []
    if valid is not None and settings.early_stopping_rounds:
        valid_sets = [_dataset(valid.in_order, target, feature_names, train_set)]
        callbacks.append(lgb.early_stopping(settings.early_stopping_rounds, verbose=False))
    if progress is not None:
        callbacks.append(_reporting(progress, settings.trees))
    booster = lgb.train(
        params,
        train_set,
        num_boost_round=settings.trees,
        valid_sets=valid_sets,
        init_model=init,
        callbacks=callbacks,
        keep_training_booster=False,
    )
    return booster


def _dataset(
    data: TreeData, target: Target, feature_names: Sequence[str], reference: lgb.Dataset | None = None
) -> lgb.Dataset:
    import lightgbm as lgb

    sizes = np.unique(data.groups, return_counts=True)[1] if target.objective == "lambdarank" else None
    return lgb.Dataset(
        data.features,
        label=data.label,
        weight=data.weight,
        group=sizes,
        feature_name=list(feature_names),
        reference=reference,
        params={"verbosity": -1, "force_col_wise": True},
        free_raw_data=False,
    )


def _reporting(progress: Progress, total: int) -> Callable[[Any], None]:
    def report(environment: Any) -> None:
        progress(int(environment.iteration) + 1, total)

    return report


def mean_predictions(boosters: Sequence[lgb.Booster], features: Array, threads: int) -> Array:
    """Returns the mean output of the boosters, (rows,): with the link of their objective, before that of the
    target."""
    total = np.zeros(len(features))
    for booster in boosters:
        total += np.asarray(booster.predict(features, num_threads=threads))
    return total / len(boosters)


def importances(boosters: Sequence[lgb.Booster], names: Sequence[str]) -> Mapping[str, float]:
    """Total gain of every feature, summed over the boosters, largest first."""
    gain = np.sum([booster.feature_importance("gain") for booster in boosters], axis=0)
    return dict(sorted(zip(names, map(float, gain), strict=True), key=lambda item: -item[1]))
