"""Smaller models: variants of a recipe on the same folds, and the smallest one that is as good.

A variant has smaller trees, fewer trees, fewer ensemble members, fewer features, or no trees if a physical
model remains. Boosting adds trees one after the other, so a variant with fewer trees is a truncated training;
smaller trees and fewer features need trainings of their own.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import GROUPINGS, fold_codes, group_codes
from tile_oracle.features.schemas import schema_named
from tile_oracle.judge.bootstrap import Interval, mean_of, paired_interval, quantile_of
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.model_folder import packed_booster
from tile_oracle.model.physics import PhysicalModel
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.ranker import CorrectionMember, Member, Ranker, TreeMember, tree_members
from tile_oracle.model.store import TRADEOFF_FILE, json_bytes
from tile_oracle.problem import Problem
from tile_oracle.record.final import problems_of
from tile_oracle.training.cross_validation_metrics import picked_efficiencies
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.folds import group_folds
from tile_oracle.training.model_documents import manifest_of, spec_of
from tile_oracle.training.recipe import Recipe, TreePart
from tile_oracle.training.train import RecipeChoice, TrainedModel

TOLERANCE_POINTS = 0.1
"""The largest loss of cross-validated mean and P10 of a smaller model, compared with the best."""

_ROUNDING = 1e-9
_TIMED_PROBLEMS = 24
_REPEATS = 5


@dataclass(frozen=True)
class Grid:
    """The divisors of each size of the recipe; every combination is a variant."""

    leaves: tuple[int, ...] = (1, 2, 4)
    trees: tuple[int, ...] = (1, 2, 4, 8)
    members: tuple[int, ...] = (1, 2, 4)
    features: tuple[int, ...] = (1, 2, 4)


GRID = Grid()


@dataclass(frozen=True)
class PickTimer:
    """How picks are timed. engine: the code that picks. time_us: model folder, problems, candidates ->
    microseconds per pick."""

    engine: str
    time_us: Callable[[Path, Sequence[Problem], Sequence[Kernel]], float]


@dataclass(frozen=True, order=True)
class Variant:
    """The size of the picking members: maximum trees, leaves per tree, ensemble members and features; all 0
    without trees."""

    trees: int
    leaves: int
    members: int
    features: int

    def __str__(self) -> str:
        if not self.trees:
            return "no trees"
        return f"{self.members} x {self.trees} trees, {self.leaves} leaves, {self.features} features"


@dataclass(frozen=True)
class Figures:
    """Cross-validated efficiency of a variant in percent, and its difference from the best variant (negative:
    a loss) with the paired bootstrap interval over the problems."""

    mean_percent: float
    p10_percent: float
    mean_gain: Interval
    p10_gain: Interval

    def as_json(self) -> dict[str, Any]:
        """Rounded to four digits; gains as [value, low, high]."""
        return {
            "mean_percent": round(self.mean_percent, 4),
            "p10_percent": round(self.p10_percent, 4),
            **{
                f"{name}_gain": [round(bound, 4) for bound in (gain.value, gain.low, gain.high)]
                for name, gain in (("mean", self.mean_gain), ("p10", self.p10_gain))
            },
        }


@dataclass(frozen=True)
class Row:
    """One variant. model_bytes: size of the compressed model files. pick_us: time of one pick."""

    variant: Variant
    by: Mapping[str, Figures]
    model_bytes: int
    pick_us: float


@dataclass(frozen=True)
class TradeOff:
    """Every variant, largest first, the one with the best mean efficiency, and the smallest that is as good.

    candidates: number of kernels in a timed pick. engine: the code that picks. recipe: the chosen one's.
    """

    rows: tuple[Row, ...]
    best: Variant
    chosen: Variant
    candidates: int
    engine: str
    recipe: Recipe

    def row(self, variant: Variant) -> Row:
        return next(row for row in self.rows if row.variant == variant)

    def as_json(self) -> dict[str, Any]:
        """size_tradeoff.json."""
        return {
            "tolerance_points": TOLERANCE_POINTS,
            "best": asdict(self.best),
            "chosen": asdict(self.chosen),
            "pick_candidates": self.candidates,
            "pick_engine": self.engine,
            "variants": [
                {
                    **asdict(row.variant),
                    "model_bytes": row.model_bytes,
                    "pick_us": round(row.pick_us, 1),
                    **{f"by_{grouping}": figures.as_json() for grouping, figures in row.by.items()},
                }
                for row in self.rows
            ],
        }


def choose_compact(
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    n_splits: int,
    effort: Effort,
    time_pick: PickTimer | None = None,
    grid: Grid = GRID,
) -> RecipeChoice:
    """The recipe of the smallest variant that is as good as the best, for `train(..., choose=...)`.

    The folder gets size_tradeoff.json, the manifest `compact`. Raises ModelError as `trade_off` does.
    """
    found = trade_off(recipe, rows, arch, n_splits, effort, time_pick, grid)
    for line in table_lines(found):
        effort.say(line)
    chosen, best = found.row(found.chosen), found.row(found.best)
    manifest = {
        "compact": {
            "chosen": asdict(found.chosen),
            "best": asdict(found.best),
            "tolerance_points": TOLERANCE_POINTS,
            "model_bytes": chosen.model_bytes,
            "largest_model_bytes": max(row.model_bytes for row in found.rows),
            "cv_mean_percent": {name: figures.mean_percent for name, figures in chosen.by.items()},
            "best_cv_mean_percent": {name: figures.mean_percent for name, figures in best.by.items()},
        }
    }
    return RecipeChoice(found.recipe, manifest, {TRADEOFF_FILE: _one_line(found.as_json())})


def trade_off(
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    n_splits: int = 5,
    effort: Effort | None = None,
    time_pick: PickTimer | None = None,
    grid: Grid = GRID,
) -> TradeOff:
    """Every variant of the recipe, cross-validated on the same folds by problem and by family.

    The best has the highest mean over both groupings; `smallest_as_good` is chosen. Pick times do not affect
    the choice. Raises ModelError for a recipe without trees or with networks, and for a single
    problem.
    """
    effort, timer = effort or Effort(), time_pick or PYTHON_PICKS
    if not _parts(recipe):
        raise ModelError(f"recipe {recipe.name} picks without trees: there is nothing to make smaller")
    if recipe.network is not None:
        raise ModelError(f"recipe {recipe.name} picks by networks, which are not made smaller")
    rows = rows.reset_index(drop=True)
    folds = _folds(rows, n_splits, effort.seed)
    groups = group_codes(rows)
    kernels = [parse_kernel_name(str(name)) for name in sorted(rows["kernel"].unique())]
    problems = list(problems_of(rows))[:_TIMED_PROBLEMS]
    efficiencies: dict[Variant, dict[str, Array]] = {}
    sizes: dict[Variant, tuple[int, float]] = {}
    shapes = _shapes(recipe, grid)
    quiet = replace(effort, report=None)
    for number, (leaves, features) in enumerate(shapes, 1):
        effort.say(f"sizes: {number} of {len(shapes)}: {leaves} leaves, {features} features")
        grown = _grown(recipe, leaves, features)
        variants = [v for v in _variants(grown, leaves, features, grid) if v not in efficiencies]
        for grouping, fold_of_row in folds.items():
            predicted = {variant: np.empty(len(rows)) for variant in variants}
            for fold in range(int(fold_of_row.max()) + 1):
                held = fold_of_row == fold
                ranker = fit(grown, rows[~held], arch, quiet)
                held_groups = np.unique(groups[held], return_inverse=True)[1]
                for variant in variants:
                    smaller = cut(ranker, grown, variant)
                    predicted[variant][held] = smaller.tflops(rows[held], held_groups, effort.threads)
            for variant in variants:
                found = 100 * picked_efficiencies(rows, predicted[variant])
                efficiencies.setdefault(variant, {})[grouping] = found
        ranker = fit(grown, rows, arch, quiet)
        for variant in variants:
            smaller = cut(ranker, grown, variant)
            took = _pick_us(smaller, recipe, rows, arch, problems, kernels, timer)
            sizes[variant] = (_bytes(smaller), took)
    best = max(efficiencies, key=lambda v: (sum(float(e.mean()) for e in efficiencies[v].values()), v))
    table_rows = tuple(
        Row(variant, _figures(efficiencies[variant], efficiencies[best], effort.seed), *sizes[variant])
        for variant in sorted(efficiencies, key=lambda v: (-sizes[v][0], v))
    )
    chosen = smallest_as_good(table_rows)
    return TradeOff(table_rows, best, chosen, len(kernels), timer.engine, recipe_of(recipe, chosen))


def smallest_as_good(rows: Sequence[Row]) -> Variant:
    """The variant with the fewest bytes (then the fewest trees) that loses at most TOLERANCE_POINTS of mean
    and of P10 against the best under each grouping. One of the rows must be the best."""
    as_good = [row for row in rows if _as_good(row)]
    return min(as_good, key=lambda row: (row.model_bytes, row.variant)).variant


def cut(ranker: Ranker, recipe: Recipe, variant: Variant) -> Ranker:
    """The ranker with only the first trees of the first boosters, in the members that decide the picks."""
    picking = {part.target for part in _parts(recipe)}
    if not variant.trees:
        kept = tuple(member for member in ranker.members if member.name not in picking)
        weights = {name: weight for name, weight in ranker.weights.items() if name not in picking}
        return replace(ranker, members=kept, weights=weights)

    def smaller(trees: TreeMember) -> TreeMember:
        boosters = trees.boosters[: variant.members]
        return replace(trees, boosters=tuple(_first_trees(booster, variant.trees) for booster in boosters))

    members: list[Member] = []
    for member in ranker.members:
        if member.name in picking and isinstance(member, CorrectionMember):
            members.append(replace(member, trees=smaller(member.trees)))
        elif member.name in picking and isinstance(member, TreeMember):
            members.append(smaller(member))
        else:
            members.append(member)
    return replace(ranker, members=tuple(members))


def recipe_of(recipe: Recipe, variant: Variant) -> Recipe:
    """The recipe that trains exactly this variant."""
    picking = {part.target for part in _parts(recipe)}
    if not variant.trees:
        weights = {name: w for name, w in recipe.picking_weights.items() if name not in picking}
        parts = tuple(part for part in recipe.trees if part.target not in picking)
        return replace(recipe, trees=parts, weights=weights)
    return replace(
        recipe,
        trees=tuple(
            _sized(part, variant.leaves, variant.features, variant.trees, variant.members)
            if part.target in picking
            else part
            for part in recipe.trees
        ),
    )


def _python_pick_us(folder: Path, problems: Sequence[Problem], kernels: Sequence[Kernel]) -> float:
    predictor = Predictor.load(folder)
    pools = [(problem, [k for k in kernels if k.matches(problem)]) for problem in problems]
    return median_pick_us(lambda problem, pool: predictor.select(problem, pool), pools)


PYTHON_PICKS = PickTimer("python", _python_pick_us)
"""Picks by `Predictor`: LightGBM through Python."""


def median_pick_us(
    pick: Callable[[Problem, Sequence[Kernel]], object], pools: Sequence[tuple[Problem, Sequence[Kernel]]]
) -> float:
    """Microseconds per pick: the median over the problems of the fastest of several calls."""
    fastest = []
    for problem, kernels in pools:
        taken = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            pick(problem, kernels)
            taken.append(time.perf_counter() - began)
        fastest.append(min(taken))
    return 1e6 * statistics.median(fastest)


def table_lines(found: TradeOff) -> Iterator[str]:
    """A text table of every variant that no smaller one beats, the best and the chosen one."""
    groupings = list(found.rows[0].by)
    heads = "".join(f"{f'by {name}: mean [vs best]  P10':>44}" for name in groupings)
    yield f"picks among {found.candidates} kernels, timed in {found.engine}"
    yield f"{'variant':<48}{'bytes':>9}{'pick us':>9}{heads}"
    for row in found.rows:
        shown = row.variant in (found.best, found.chosen) or not any(
            other.model_bytes < row.model_bytes and _mean(other) >= _mean(row) for other in found.rows
        )
        if not shown:
            continue
        marks = " best" * (row.variant == found.best) + " chosen" * (row.variant == found.chosen)
        figures = "".join(
            f"{f'{f.mean_percent:.2f} [{f.mean_gain.low:+.2f}, {f.mean_gain.high:+.2f}]':>36}"
            f"{f.p10_percent:>8.2f}"
            for f in row.by.values()
        )
        yield f"{row.variant!s:<48}{row.model_bytes:>9}{row.pick_us:>9.0f}{figures}{marks}"
    yield (
        f"{len(found.rows)} variants; shown are those that no smaller one beats. Chosen is the smallest that "
        f"loses at most {TOLERANCE_POINTS:g} points of mean and P10 against the best, under each grouping"
    )


def _one_line(value: object) -> bytes:
    """JSON on one line, because an indented table of variants is larger than most models."""
    return (json.dumps(value, allow_nan=False) + "\n").encode()


# ---- the variants -------------------------------------------------------------------------------


def _parts(recipe: Recipe) -> list[TreePart]:
    """The tree members that decide the picks."""
    return [part for part in recipe.trees if recipe.picking_weights.get(part.target, 0) > 0]


def _divided(whole: int, by: Sequence[int], least: int) -> list[int]:
    return sorted({max(least, math.ceil(whole / divisor)) for divisor in by}, reverse=True)


def _full(recipe: Recipe) -> Variant:
    parts = _parts(recipe)
    return Variant(
        max(part.settings.trees for part in parts),
        max(part.settings.num_leaves for part in parts),
        max(part.ensemble for part in parts),
        max(len(schema_named(part.schema).names) for part in parts),
    )


def _shapes(recipe: Recipe, grid: Grid) -> list[tuple[int, int]]:
    """(leaves, features) of the trainings."""
    full = _full(recipe)
    return [
        (leaves, features)
        for leaves in _divided(full.leaves, grid.leaves, 2)
        for features in _divided(full.features, grid.features, 4)
    ]


def _variants(recipe: Recipe, leaves: int, features: int, grid: Grid) -> Iterator[Variant]:
    """The variants that truncate one training, and the one without trees if other members pick."""
    full = _full(recipe)
    for trees in _divided(full.trees, grid.trees, 1):
        for members in _divided(full.members, grid.members, 1):
            yield Variant(trees, leaves, members, features)
    if set(recipe.picking_weights) - {part.target for part in _parts(recipe)}:
        yield Variant(0, 0, 0, 0)


def _sized(part: TreePart, leaves: int, features: int, trees: int, members: int) -> TreePart:
    settings = replace(
        part.settings,
        num_leaves=min(leaves, part.settings.num_leaves),
        trees=min(trees, part.settings.trees),
    )
    everything = len(schema_named(part.schema).names)
    return replace(
        part,
        settings=settings,
        ensemble=min(members, part.ensemble),
        strongest=0 if features >= everything else features,
    )


def _grown(recipe: Recipe, leaves: int, features: int) -> Recipe:
    full = _full(recipe)
    return recipe_of(recipe, replace(full, leaves=leaves, features=features))


def _first_trees(booster: lgb.Booster, trees: int) -> lgb.Booster:
    if booster.num_trees() <= trees:
        return booster
    return lgb.Booster(model_str=booster.model_to_string(num_iteration=trees))


# ---- their efficiency ---------------------------------------------------------------------------


def _folds(rows: pd.DataFrame, n_splits: int, seed: int) -> dict[str, npt.NDArray[np.int64]]:
    folds = {}
    for grouping in GROUPINGS:
        groups = fold_codes(rows, grouping)
        count = len(np.unique(groups))
        if count >= 2:
            folds[grouping] = group_folds(groups, min(n_splits, count), seed)
    if not folds:
        raise ModelError(
            "comparing sizes needs at least two problems per data type: the measurements are of one"
        )
    return folds


def _figures(own: Mapping[str, Array], best: Mapping[str, Array], seed: int) -> dict[str, Figures]:
    p10 = quantile_of(0.1)
    return {
        grouping: Figures(
            float(values.mean()),
            float(np.quantile(values, 0.1)),
            paired_interval(best[grouping], values, mean_of, seed),
            paired_interval(best[grouping], values, p10, seed),
        )
        for grouping, values in own.items()
    }


def _as_good(row: Row) -> bool:
    return all(
        gain.value >= -TOLERANCE_POINTS - _ROUNDING
        for figures in row.by.values()
        for gain in (figures.mean_gain, figures.p10_gain)
    )


def _mean(row: Row) -> float:
    return sum(figures.mean_percent for figures in row.by.values())


def _bytes(ranker: Ranker) -> int:
    boosters = [booster for member in tree_members(ranker) for booster in member.boosters]
    physical = [json_bytes(m.as_json()) for m in ranker.members if isinstance(m, PhysicalModel)]
    return sum(map(len, (*(packed_booster(booster) for booster in boosters), *physical)))


def _pick_us(
    ranker: Ranker,
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    problems: Sequence[Problem],
    kernels: Sequence[Kernel],
    timer: PickTimer,
) -> float:
    """The time of a pick by a model loaded from its folder, as users load it."""
    kind = {"arch": arch, "dtype": str(rows["dtype"].iloc[0])}
    if "direction" in rows:
        kind["direction"] = str(rows["direction"].iloc[0])
    model = TrainedModel(
        ranker, spec_of(recipe, ranker, kind, rows), manifest_of(ranker, rows, {}, rows, 0, ()), (), None
    )
    with tempfile.TemporaryDirectory(prefix="tile-oracle-") as folder:
        model.save(Path(folder) / "model")
        return timer.time_us(Path(folder) / "model", problems, kernels)
