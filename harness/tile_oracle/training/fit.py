"""Training rows -> a ranker: every member of a recipe, fitted to all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_codes, group_folds
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.model.aliases import Aliases, find_aliases, merge
from tile_oracle.model.network import NetworkMember
from tile_oracle.model.physics import PhysicalModel, explain_aliases, fit_physical, nearness
from tile_oracle.model.ranker import Member, Ranker, TreeMember
from tile_oracle.model.trees import Target, TreeData, TreeSettings, grow, importances, label, target_named
from tile_oracle.record.final import records_op
from tile_oracle.training.grow_network import grow_network
from tile_oracle.training.recipe import NetworkPart, Recipe, TreePart
from tile_oracle.training.training_rows import AUXILIARY, is_auxiliary
from tile_oracle.training.warm_start import old_trees

Report = Callable[[str], None]
"""Called with one line of progress."""

_STOPPING_SHARE = 8
_GAIN_SETTINGS = TreeSettings(trees=200)
"""The settings of the trees that select features, independent of the recipe's trees."""
_MOST_CORRECTION = 0.3
"""Largest correction of a log time. A larger error of the physical model is a disturbed measurement."""


@dataclass(frozen=True)
class Effort:
    """The resources of a training, and its seed."""

    seed: int = 0
    threads: int = 1
    report: Report | None = None

    def say(self, line: str) -> None:
        if self.report is not None:
            self.report(line)


def fit(
    recipe: Recipe, rows: pd.DataFrame, arch: str, effort: Effort | None = None, start: Ranker | None = None
) -> Ranker:
    """Returns a ranker trained on every row of a training table (`training_rows(...).table`), auxiliary rows
    included.

    `start`: a model to grow further (warm start); the recipe must have exactly its tree members
    (`WarmStart.recipe`). Its aliases and its physical model are kept, because the old trees were fitted to
    the residuals of these; kernels that they lack are added.

    Early stopping, if the recipe has it, holds out an eighth of the problems to find the number of trees.
    Raises ModelError for unusable rows, and for auxiliary rows if the recipe has a physical model,
    which is specific to one direction.
    """
    effort, recipe = effort or Effort(), recipe.for_op(records_op(rows))
    if recipe.physical and is_auxiliary(rows).any():
        raise ModelError(
            f"recipe {recipe.name} is of one direction and takes no auxiliary training data: train another "
            "recipe"
        )
    hardware = hardware_features(arch)
    aliases, rows = _merged(recipe, rows, hardware, effort, start)
    groups = _groups(rows)
    near = nearness(_log_time(rows), groups)
    code = _code_of(recipe, rows, start)
    own = ~is_auxiliary(rows)
    names = [name for name in ("direction", "dtype") if name in rows]
    alike = (rows[names] == rows.loc[own, names].iloc[0]).all(axis=1).to_numpy()
    others = set(rows.loc[~own, "kernel"]) - set(rows.loc[own, "kernel"])
    kept = None if code is None else code.without(others)
    physical = _physical(rows, near, hardware, effort, start) if recipe.physical else None
    members: list[Member] = [] if physical is None else [physical]
    for part in recipe.trees:
        old = None if start is None else old_trees(start, part)
        target = target_named(part.target) if old is None else old.target
        if target.name == "correction":
            if physical is None:
                raise ModelError(f"recipe {recipe.name}: a correction needs the physical model")
            error = _log_time(rows) - physical.log_time(rows, hardware)
            goal = np.clip(error, -_MOST_CORRECTION, _MOST_CORRECTION)
        else:
            goal = label(target, rows, groups)
        schema = schema_named(part.schema)
        data = TreeData(schema.compute(rows, hardware), goal, near if part.near_best else None, groups)
        if code is not None and schema.optional:
            known = schema.compute(rows.assign(**code.of_rows(rows)), hardware)
            data = replace(data, features=known, unseen=data.features)
        trees = _fit_trees(part, target, data, alike, effort, old, kept)
        members.append(replace(trees, physical=physical) if target.name == "correction" else trees)
    if recipe.network is not None:
        members.append(_network(recipe.network, rows, groups, hardware, effort, start))
    return Ranker(arch, tuple(members), dict(recipe.picking_weights), aliases)


def _network(
    part: NetworkPart,
    rows: pd.DataFrame,
    groups: npt.NDArray[np.int64],
    hardware: Mapping[str, float],
    effort: Effort,
    start: Ranker | None,
) -> NetworkMember:
    if not part.schema:
        raise ModelError(
            "a network ranks kernels of several sources, which these records do not have: train a recipe of "
            "trees"
        )
    log_time = _log_time(rows)
    weight = nearness(log_time, groups) ** part.settings.near
    schema, say = schema_named(part.schema), None if effort.report is None else effort.say
    old = None if start is None else start.network
    return grow_network(
        schema, rows, log_time, weight, groups, hardware, part.settings, effort.seed, say, old
    )


def _groups(rows: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns the number of each row's problem, another one for each build: their times are not compared."""
    groups = group_codes(rows)
    if AUXILIARY not in rows:
        return groups
    build = rows[AUXILIARY].to_numpy(dtype=np.int64)
    return np.unique(groups * (build.max() + 1) + build, return_inverse=True)[1]


def _log_time(rows: pd.DataFrame) -> Array:
    return np.asarray(np.log(rows["latency_ms"].to_numpy(dtype=np.float64)))


def _merged(
    recipe: Recipe, rows: pd.DataFrame, hardware: Mapping[str, float], effort: Effort, start: Ranker | None
) -> tuple[Aliases, pd.DataFrame]:
    """Returns the aliases of the kernels, and the rows with each alias replaced by its representative."""
    if start is not None:
        if not start.aliases.representative:
            return start.aliases, rows
        more = {str(name): str(name) for name in sorted(rows["kernel"].unique())}
        aliases = replace(start.aliases, representative={**more, **start.aliases.representative})
        return aliases, merge(rows, aliases)
    if not recipe.physical:
        return Aliases(), rows
    aliases = explain_aliases(rows, find_aliases(rows), hardware)
    merged = merge(rows, aliases)
    effort.say(
        f"  {len(aliases.representative)} kernel names are {merged['kernel'].nunique()} distinct kernels"
    )
    return aliases, merged


def _physical(
    rows: pd.DataFrame, weight: Array, hardware: Mapping[str, float], effort: Effort, start: Ranker | None
) -> PhysicalModel:
    """Returns the physical time model: fitted, or in a warm start the old one with the kernels that it
    lacks."""
    effort.say("  physical: fitting the terms of every kernel's time")
    found, old = fit_physical(rows, weight, hardware), None if start is None else start.physical
    if old is None:
        return found
    if (found.terms, found.schema) != (old.terms, old.schema):
        raise ModelError("warm start: the old physical model has other terms than this version's: train anew")
    return replace(old, coefficients={**found.coefficients, **old.coefficients})


def _code_of(recipe: Recipe, rows: pd.DataFrame, start: Ranker | None) -> CodeTable | None:
    """Returns the facts of binaries that a recipe reads, including those of a warm start's model; None if it
    reads none."""
    if not recipe.reads_code:
        return None
    code = CodeTable.of(rows)
    if not code.facts and recipe.needs_code:
        raise ModelError(
            f"recipe {recipe.name} uses facts of the kernels' binaries, which none of these records has: "
            "train another recipe"
        )
    for member in start.trees if start is not None else ():
        code = code.over(member.code)
    return code


def _fit_trees(
    part: TreePart,
    target: Target,
    data: TreeData,
    alike: npt.NDArray[np.bool_],
    effort: Effort,
    old: TreeMember | None,
    code: CodeTable | None,
) -> TreeMember:
    """Returns one tree member.

    alike: marks the rows of the model's direction and type. Every second booster of an ensemble trains on
    these alone: it predicts frequently measured kernels better, the others the rest. old: the member that a
    warm start grows.
    """
    schema = schema_named(part.schema)
    settings, valid, names = part.settings, None, schema.names
    if old is not None:
        data = data.columns(np.array([names.index(name) for name in old.feature_names]))
        names = old.feature_names
    elif 0 < part.strongest < len(names):
        looking = replace(part, strongest=0, ensemble=1, settings=_GAIN_SETTINGS)
        first = _fit_trees(looking, target, data, alike, replace(effort, report=None), None, code)
        kept = set(list(importances(first.boosters, names))[: part.strongest])
        data = data.columns(np.array([name in kept for name in names]))
        names = tuple(name for name in names if name in kept)
    boosters = []
    for number in range(part.ensemble):
        seed = effort.seed + number
        train_data = data if number % 2 == 0 else data.take(alike)
        if settings.early_stopping_rounds and train_data.groups.max() + 1 >= _STOPPING_SHARE:
            held = group_folds(train_data.groups, _STOPPING_SHARE, seed) == 0
            train_data, valid = train_data.take(~held), train_data.take(held)
        effort.say(f"  {target.name}: growing up to {settings.trees} trees (seed {seed})")
        init = None if old is None else old.boosters[number]
        boosters.append(
            grow(
                target,
                train_data.followed_by_unseen(seed),
                settings,
                seed,
                effort.threads,
                names,
                valid,
                init,
                _every_fifth(effort),
            )
        )
    return TreeMember(target, schema, names, tuple(boosters), code or CodeTable())


def _every_fifth(effort: Effort) -> Callable[[int, int], None] | None:
    if effort.report is None:
        return None

    def progress(done: int, total: int) -> None:
        if done * 5 % total == 0 and done < total:
            effort.say(f"    {done} of {total} trees")

    return progress
