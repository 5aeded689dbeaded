"""Repeated training with more weight on badly picked problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from tile_oracle.judge.selection import summarise
from tile_oracle.training.cross_validation import cross_validate
from tile_oracle.training.cross_validation_metrics import selection_of
from tile_oracle.training.fit import Effort
from tile_oracle.training.recipe import Recipe
from tile_oracle.training.training_rows import IMPORTANCE

_HARD_UNDER = 0.95
_HARD_WEIGHT = 3.0


def mine_hard_examples(
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    rounds: int,
    n_splits: int = 5,
    effort: Effort | None = None,
) -> tuple[pd.DataFrame, list[dict[str, float]]]:
    """Rows with the weights of the best round, and every round's cross-validated metrics in percent.

    Round 0 has equal weights. Each further round triples the weight of the problems whose out-of-fold pick
    was below 95 %. The best round has the highest mean.
    """
    effort = effort or Effort()
    weighted, best, figures, best_mean = rows, rows, [], -1.0
    for number in range(rounds + 1):
        predictions = cross_validate(
            recipe, weighted, arch, n_splits, "problem", None, replace(effort, report=None)
        )
        found = selection_of(rows, predictions.table)
        efficiency = summarise(found)
        mean = efficiency.mean_percent or 0.0
        figures.append({"round": number, "mean": mean, "P10": efficiency.p10_percent or 0.0})
        effort.say(
            f"hard examples, round {number}: mean {mean:.2f} %, P10 {efficiency.p10_percent or 0.0:.2f} %"
        )
        if mean > best_mean:
            best, best_mean = weighted, mean
        hard = found.loc[found["efficiency"] < _HARD_UNDER, "problem"]
        before = weighted.get(IMPORTANCE, 1.0)
        weighted = weighted.assign(
            **{IMPORTANCE: before * np.where(weighted["problem"].isin(hard), _HARD_WEIGHT, 1.0)}
        )
    return best, figures
