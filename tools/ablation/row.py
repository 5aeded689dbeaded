"""A row of the ablation table: one recipe, cross-validated and evaluated on given records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.evaluation.evaluate import Evaluation, evaluate
from tile_oracle.features.groups import group_codes
from tile_oracle.judge.selection import Efficiency, summarise
from tile_oracle.training.cross_validation import cross_validate
from tile_oracle.training.cross_validation_metrics import selection_of
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import Recipe
from tile_oracle.training.training_rows import training_rows

DEFAULT_ROWS = (
    "published", "tflops_97", "log_time_97", "log_efficiency_97", "tflops", "log_time", "log_efficiency",
    "lambdarank", "pairwise", "log_time_x4", "log_time_merged", "physical_all", "physical",
    "physical_and_trees", "default",
)  # fmt: skip
"""Recipes from the published one to the default, changing one thing at a time where possible."""


@dataclass(frozen=True)
class AblationRow:
    """Cross-validated efficiencies of a recipe, and its evaluation on test records (None without them)."""

    recipe: str
    by_problem: Efficiency
    by_family: Efficiency
    test: Evaluation | None


def ablation_row(
    recipe: Recipe,
    records: pd.DataFrame,
    test: pd.DataFrame | None = None,
    n_splits: int = 5,
    seed: int = 0,
    threads: int = 1,
) -> AblationRow:
    """Cross-validates the recipe on the records by problem and by family, then trains on all of them and
    evaluates on the test records. Raises ModelError unless all records are of one architecture."""
    arch = sorted(records["arch"].dropna().unique())
    if len(arch) != 1:
        raise ModelError(
            f"the records must be of one architecture, not {len(arch)}: {', '.join(arch) or 'none is named'}"
        )
    recipe = recipe.for_rows(records)
    rows = training_rows(records).table
    effort = Effort(seed, threads)
    found = [
        summarise(selection_of(rows, cross_validate(recipe, rows, arch[0], n_splits, g, None, effort).table))
        for g in ("problem", "family")
    ]
    evaluation = None
    if test is not None:
        ranker = fit(recipe, rows, arch[0], effort)
        usable = training_rows(test).table
        predicted = ranker.tflops(usable, group_codes(usable), threads)
        rankings = pd.DataFrame(
            {
                "problem": usable["problem"],
                "kernel": usable["kernel"],
                "predicted_tflops": np.asarray(predicted),
            }
        )
        evaluation = evaluate(recipe.name, test, rankings, seed)
    return AblationRow(recipe.name, found[0], found[1], evaluation)
