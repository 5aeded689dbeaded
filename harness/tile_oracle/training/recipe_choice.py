"""Which recipe suits some records: cross-validation by family on the records themselves.

Recipes are compared by successive halving (Jamieson and Talwalkar, 2016): all on a part of the families, the
better half on more, the last two on all. Every round uses the same folds for all its recipes, so differences
are paired by problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.groups import fold_codes
from tile_oracle.terminal.text_table import text_table
from tile_oracle.training.auxiliary_rows import own_rows
from tile_oracle.training.cross_validation import cross_validate
from tile_oracle.training.cross_validation_metrics import selection_of
from tile_oracle.training.fit import Effort
from tile_oracle.training.recipe import Recipe, recipe_named

CANDIDATES = ("physical", "lambdarank", "network", "two_orders", "launch", "log_time")
"""The recipes that are compared: one for each way to learn, such as ranking, times and a physical model."""

MANIFEST_KEY = "recipe_choice"

_FEWEST_FAMILIES = 24
"""A round has at least as many families, if there are as many."""


@dataclass(frozen=True)
class Round:
    """One round: the share of the families, the number of folds, and how many recipes it keeps."""

    share: float
    folds: int
    keeps: int


ROUNDS = (Round(0.25, 2, 3), Round(0.5, 2, 2), Round(1.0, 3, 1))
"""With six recipes that each take as long as the longest, the cost is that of 7 fits to all rows. The
training of the longest costs 9: five folds by two groupings, each on 4/5 of the rows, and all rows."""


@dataclass(frozen=True)
class Score:
    """A recipe in a round. Efficiencies are of picks for held-out families, in percent.

    behind_points: mean over the problems of best recipe - this one. error_points: standard error of that.
    kept: in the next round; in the last, chosen. seconds: time of its cross-validation.
    """

    recipe: str
    mean_percent: float
    p10_percent: float
    behind_points: float
    error_points: float
    kept: bool
    seconds: float


@dataclass(frozen=True)
class RoundResult:
    """The scores of a round, the best first, and what they were computed on."""

    families: int
    problems: int
    folds: int
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class SuitedRecipe:
    """The chosen recipe, the rounds that chose it, and why other recipes did not take part."""

    recipe: Recipe
    rounds: tuple[RoundResult, ...]
    left_out: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """For the manifest. It has no times: equal records make equal entries."""
        return {
            "chosen": self.recipe.name,
            "left_out": self.left_out,
            "rounds": [
                {
                    "families": one.families,
                    "problems": one.problems,
                    "folds": one.folds,
                    "scores": [_without_time(score) for score in one.scores],
                }
                for one in self.rounds
            ],
        }

    def table(self) -> list[str]:
        """The choice as one table of text, and one line for each recipe that did not take part."""
        rows = [("recipe", "round", "problems", "mean %", "P10 %", "behind", "+-", "seconds", "")]
        for number, one in enumerate(self.rounds, start=1):
            last = number == len(self.rounds)
            for score in one.scores:
                rows.append(
                    (
                        score.recipe,
                        str(number),
                        str(one.problems),
                        f"{score.mean_percent:.2f}",
                        f"{score.p10_percent:.2f}",
                        f"{score.behind_points:.2f}",
                        f"{score.error_points:.2f}",
                        f"{score.seconds:.1f}",
                        ("chosen" if last else "kept") if score.kept else "",
                    )
                )
        notes = [f"{name}: {why}" for name, why in self.left_out.items()]
        return [*text_table(rows, range(1, 8)), *notes]


def _without_time(score: Score) -> dict[str, Any]:
    values = asdict(score)
    del values["seconds"]
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def choose_recipe(
    rows: pd.DataFrame,
    arch: str,
    effort: Effort | None = None,
    names: Sequence[str] = CANDIDATES,
    *,
    trees_only: bool = False,
    rounds: Sequence[Round] = ROUNDS,
) -> SuitedRecipe:
    """The recipe whose picks are best on held-out families of a training table.

    The highest mean efficiency wins a round; equal means keep the order of `names`. trees_only: leave out
    recipes that take no auxiliary training data. The same rows and seed give the same choice. With a single
    family there is nothing to compare: the first recipe is taken. Raises ModelError if no recipe can be
    trained.
    """
    effort = effort or Effort()
    rows = own_rows(rows)
    taken, left_out = _candidates(rows, names, trees_only=trees_only)
    families = fold_codes(rows, "family")
    found: list[RoundResult] = []
    for number, one in enumerate(rounds):
        if len(taken) < 2 or len(np.unique(families)) < 2:
            break
        part = rows[_of_families(families, one.share, effort.seed)]
        result = _round(taken, part, arch, one, effort, left_out)
        kept = [score.recipe for score in result.scores if score.kept]
        taken = [recipe for recipe in taken if recipe.name in kept]
        found.append(result)
        if number + 1 < len(rounds):
            effort.say(f"  kept: {', '.join(kept)}")
    if not taken:
        raise ModelError(f"no recipe can be trained on these records: {next(iter(left_out.values()), '')}")
    return SuitedRecipe(taken[0], tuple(found), left_out)


def _candidates(
    rows: pd.DataFrame, names: Sequence[str], *, trees_only: bool
) -> tuple[list[Recipe], dict[str, str]]:
    """The recipes that the rows can train, and why they cannot train the others."""
    taken: list[Recipe] = []
    left_out: dict[str, str] = {}
    for name in names:
        try:
            recipe = recipe_named(name).for_rows(rows)
        except ModelError as error:
            left_out[name] = str(error)
            continue
        if trees_only and recipe.physical:
            left_out[name] = "takes no auxiliary training data"
        else:
            taken.append(recipe)
    return taken, left_out


def _of_families(families: npt.NDArray[np.int64], share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Marks the rows of a share of the families, which are drawn by the seed. A larger share contains a
    smaller one."""
    found = np.unique(families)
    count = max(math.ceil(share * len(found)), min(_FEWEST_FAMILIES, len(found)))
    drawn = np.random.default_rng(seed).permutation(found)[:count]
    return np.isin(families, drawn)


def _round(
    recipes: Sequence[Recipe],
    rows: pd.DataFrame,
    arch: str,
    one: Round,
    effort: Effort,
    left_out: dict[str, str],
) -> RoundResult:
    """Cross-validates the recipes. One that cannot be trained is added to `left_out`. Raises ModelError if
    none can."""
    count = len(np.unique(fold_codes(rows, "family")))
    folds = min(one.folds, count)
    picked: dict[str, pd.Series] = {}
    seconds: dict[str, float] = {}
    for recipe in recipes:
        effort.say(f"comparing recipes on {rows['problem'].nunique()} problems: {recipe.name}")
        started = time.monotonic()
        try:
            tested = cross_validate(recipe, rows, arch, folds, "family", None, replace(effort, report=None))
        except ModelError as error:
            left_out[recipe.name] = str(error)
            continue
        picked[recipe.name] = selection_of(rows, tested.table).set_index("problem")["efficiency"]
        seconds[recipe.name] = time.monotonic() - started
    if not picked:
        raise ModelError(f"no recipe can be trained on these records: {next(iter(left_out.values()), '')}")
    table = 100.0 * pd.DataFrame(picked).fillna(0.0)
    order = sorted(picked, key=lambda name: (-round(float(table[name].mean()), 9), list(picked).index(name)))
    scores = []
    for place, name in enumerate(order):
        behind = table[order[0]] - table[name]
        scores.append(
            Score(
                name,
                float(table[name].mean()),
                float(table[name].quantile(0.1)),
                float(behind.mean()),
                float(behind.std(ddof=1) / math.sqrt(len(behind))) if len(behind) > 1 else 0.0,
                place < one.keeps,
                seconds[name],
            )
        )
    return RoundResult(count, len(table), folds, tuple(scores))
