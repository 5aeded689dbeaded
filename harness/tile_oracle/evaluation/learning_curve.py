"""Efficiency against the number of training problems: whether more measurements would still help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.groups import fold_codes, group_codes
from tile_oracle.judge.bootstrap import Interval, interval, mean_of, quantile_of
from tile_oracle.judge.selection import COVERED
from tile_oracle.training.cross_validation_metrics import selection_of
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.folds import group_folds
from tile_oracle.training.recipe import Recipe

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Training set sizes, in problems, as far as available; the last point uses all problems."""


@dataclass(frozen=True)
class CurvePoint:
    """A point of the curve. problems: size of the training set (the largest, because folds differ slightly).
    judged: number of held-out problems. mean, median, p10: efficiency in percent with intervals over the
    problems."""

    problems: int
    judged: int
    mean: Interval
    median: Interval
    p10: Interval

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def learning_curve(
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    sizes: Sequence[int] = SIZES,
    n_splits: int = 5,
    grouping: str = "family",
    effort: Effort | None = None,
) -> list[CurvePoint]:
    """Cross-validated efficiency of models trained on subsets of a training table's problems.

    In every fold all models are evaluated on the same held-out problems. Training sets are nested: the first
    n of the fold's other problems, in an order drawn from the seed. Raises ModelError if there are too few
    problems for the folds.
    """
    effort = effort or Effort()
    groups = fold_codes(rows, grouping)
    count = len(np.unique(groups))
    if count < 2:
        raise ModelError(f"a learning curve needs at least two of {grouping}: there is {count}")
    folds = group_folds(groups, min(n_splits, count), effort.seed)
    problems = group_codes(rows)
    available = [len(np.unique(problems[folds != fold])) for fold in range(int(folds.max()) + 1)]
    wanted = [size for size in sorted(set(sizes)) if size < max(available)] + [max(available)]
    points = []
    for size in wanted:
        effort.say(f"learning curve: {size} of {max(available)} problems")
        frames = []
        for fold in range(int(folds.max()) + 1):
            train_on = _first(problems[folds != fold], size, effort.seed)
            chosen = rows[(folds != fold) & np.isin(problems, train_on)]
            held = rows[folds == fold]
            ranker = fit(recipe, chosen, arch, Effort(effort.seed, effort.threads))
            predicted = ranker.tflops(held, group_codes(held), effort.threads)
            frames.append(held[["problem", "kernel"]].assign(predicted_tflops=np.asarray(predicted)))
        selection = selection_of(rows, pd.concat(frames, ignore_index=True))
        covered = selection[selection["coverage"] == COVERED]
        percent = 100.0 * covered["efficiency"].to_numpy(dtype=np.float64)
        points.append(
            CurvePoint(
                size,
                len(percent),
                interval(percent, mean_of, effort.seed),
                interval(percent, quantile_of(0.5), effort.seed),
                interval(percent, quantile_of(0.1), effort.seed),
            )
        )
    return points


def _first(problems: np.ndarray, size: int, seed: int) -> np.ndarray:
    """The first `size` problems in an order drawn from the seed."""
    distinct = np.unique(problems)
    return np.asarray(distinct[np.random.default_rng(seed).permutation(len(distinct))[:size]])
