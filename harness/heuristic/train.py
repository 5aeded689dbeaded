"""Records -> trained model: cross-validation that never splits a problem, then a fit on every row."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd

from harness.errors import ModelError
from harness.heuristic.aliases import Aliases, find_aliases, merge
from harness.heuristic.code_table import CODE_COLUMNS, CodeTable
from harness.heuristic.columns import pair_columns
from harness.heuristic.crossval_figures import Check, check, metrics_json, selection_of
from harness.heuristic.folds import GROUPINGS, fold_codes, group_codes, group_folds
from harness.heuristic.hardware import hardware_figures
from harness.heuristic.model_folder import (
    CODE_FILE,
    MANIFEST_FILE,
    PHYSICAL_FILE,
    SPEC_FILE,
    ModelSpec,
    json_bytes,
    packed_booster,
    read_json,
    write_folder,
)
from harness.heuristic.physics import PhysicalModel, explain_aliases, fit_physical, nearness
from harness.heuristic.ranker import (
    CorrectionMember,
    Member,
    Ranker,
    TreeMember,
    constant_groups,
    tree_members,
)
from harness.heuristic.recipe import Recipe, TreePart, recipe_named
from harness.heuristic.schemas import schema_named
from harness.heuristic.targets import label, target_named
from harness.heuristic.training_rows import IMPORTANCE, pair_columns_of, training_rows, with_importance
from harness.heuristic.trees import TreeData, TreeSettings, grow, importances
from harness.kernel import Kernel, kernel_from_row
from harness.oracle import records_op
from harness.problem import GemmProblem, problem_from_row
from harness.selection import summarise
from harness.version import __version__

Report = Callable[[str], None]
"""Called with one line of progress."""

OUT_OF_FOLD_RECIPE = "lambdarank"
"""What ranks a run by its own records: it needs no physical model, and so nothing of the target. Held out by
problem it did better than `log_time` on the records of gfx950, of a CPU and of GEMMs (docs/heuristic.md)."""

_STOPPING_SHARE = 8
_GAIN_SETTINGS = TreeSettings(trees=200)
"""By what trees the strongest features are found: the same whatever the trees that then read them."""
_MOST_RUNS = 100
_HARD_UNDER = 0.95
_HARD_WEIGHT = 3.0
_MOST_CORRECTION = 0.3
"""A correction is at most 30 %: what the physical model misses by more is a disturbed measurement."""


@dataclass(frozen=True)
class Effort:
    """What training may use, and from which random numbers."""

    seed: int = 0
    threads: int = 1
    report: Report | None = None

    def say(self, line: str) -> None:
        if self.report is not None:
            self.report(line)


@dataclass(frozen=True)
class RecipeChoice:
    """A recipe that was found by trying several, and what the manifest and the folder keep of the search."""

    recipe: Recipe
    manifest: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


RecipeSearch = Callable[[Recipe, pd.DataFrame, str, int, Effort], RecipeChoice]
"""Recipe, training rows, architecture, folds, effort -> the recipe that is trained in its place."""


def fit(
    recipe: Recipe, rows: pd.DataFrame, arch: str, effort: Effort | None = None, start: Ranker | None = None
) -> Ranker:
    """A ranker trained on every row of a training table (`training_rows(...).table`).

    `start`: a model whose trees are grown further (warm start); its features must be the recipe's.

    Early stopping, where the recipe has it, holds an eighth of the problems out for finding the number
    of trees. Raises ModelError for rows that cannot be used.
    """
    effort = effort or Effort()
    hardware = hardware_figures(arch)
    aliases = Aliases()
    if recipe.aliases:
        aliases = explain_aliases(rows, find_aliases(rows), hardware)
        rows = merge(rows, aliases)
        effort.say(
            f"  {len(aliases.representative)} kernel names are {rows['kernel'].nunique()} distinct kernels"
        )
    groups = group_codes(rows)
    near = nearness(np.log(rows["latency_ms"].to_numpy(dtype=np.float64)), groups)
    importance = rows[IMPORTANCE].to_numpy(dtype=np.float64) if IMPORTANCE in rows else None
    if importance is not None:
        near = near * importance
    code = _code_of(recipe, rows, start)
    physical = None
    members: list[Member] = []
    if recipe.physical:
        effort.say("  physical: fitting the terms of every kernel's time")
        physical = fit_physical(rows, near, hardware)
        members.append(physical)
    for part in recipe.trees:
        target = target_named(part.target)
        if target.name == "correction":
            if physical is None:
                raise ModelError(f"recipe {recipe.name}: a correction needs the physical model")
            level = physical.log_time(rows, hardware)
            goal = np.clip(
                np.log(rows["latency_ms"].to_numpy(dtype=np.float64)) - level,
                -_MOST_CORRECTION,
                _MOST_CORRECTION,
            )
        else:
            goal = label(target, rows, groups)
        schema = schema_named(part.schema)
        data = TreeData(schema.compute(rows, hardware), goal, near if part.near_best else importance, groups)
        if code is not None and schema.optional:
            data = data.followed_by(schema.compute(rows.assign(**code.columns(rows["kernel"])), hardware))
        trees = _fit_trees(part, data, effort, start, code)
        members.append(
            CorrectionMember(physical, trees) if target.name == "correction" and physical else trees
        )
    return Ranker(arch, tuple(members), dict(recipe.picking_weights), aliases)


def _code_of(recipe: Recipe, rows: pd.DataFrame, start: Ranker | None) -> CodeTable | None:
    """The figures of the binaries that a recipe reads, and those that a warm start's model knew. Every row is
    then learnt twice, with them and without, so that the model can predict a kernel whose binary nobody has
    seen."""
    if not recipe.reads_code:
        return None
    code = CodeTable.of(rows)
    if not code.figures:
        raise ModelError(
            f"recipe {recipe.name} reads figures of the kernels' binaries ({', '.join(CODE_COLUMNS)}), which "
            "none of these records has: train another recipe"
        )
    for member in tree_members(start) if start is not None else ():
        code = code.over(member.code)
    return code


def _fit_trees(
    part: TreePart, data: TreeData, effort: Effort, start: Ranker | None, code: CodeTable | None
) -> TreeMember:
    target, schema = target_named(part.target), schema_named(part.schema)
    settings, valid, names = part.settings, None, schema.names
    if 0 < part.strongest < len(names):
        looking = replace(part, strongest=0, ensemble=1, settings=_GAIN_SETTINGS)
        first = _fit_trees(looking, data, replace(effort, report=None), None, code)
        kept = set(list(importances(first.boosters, names))[: part.strongest])
        chosen = [name in kept for name in names]
        names = tuple(name for name in names if name in kept)
        data = replace(data, features=np.ascontiguousarray(data.features[:, chosen]))
    boosters = []
    for number in range(part.ensemble):
        seed = effort.seed + number
        train_data = data
        if settings.early_stopping_rounds and data.groups.max() + 1 >= _STOPPING_SHARE:
            held = group_folds(data.groups, _STOPPING_SHARE, seed) == 0
            train_data, valid = data.take(~held), data.take(held)
        effort.say(f"  {target.name}: growing up to {settings.trees} trees (seed {seed})")
        init = None if start is None else _init_booster(start, part, number, names)
        boosters.append(
            grow(
                target,
                train_data,
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


def _init_booster(start: Ranker, part: TreePart, number: int, names: tuple[str, ...]) -> lgb.Booster:
    """The booster that a warm start grows further."""
    for member in tree_members(start):
        if member.name == part.target and number < len(member.boosters):
            if member.feature_names != names:
                wanted, have = set(names), set(member.feature_names)
                raise ModelError(
                    f"warm start: the old model's features are not those of {part.schema} "
                    f"(missing {', '.join(sorted(wanted - have)) or 'none'}; "
                    f"unknown {', '.join(sorted(have - wanted)) or 'none'})"
                )
            return member.boosters[number]
    raise ModelError(f"warm start: the old model has no member {part.target} number {number}")


def _every_fifth(effort: Effort) -> Callable[[int, int], None] | None:
    if effort.report is None:
        return None

    def progress(done: int, total: int) -> None:
        if done * 5 % total == 0 and done < total:
            effort.say(f"    {done} of {total} trees")

    return progress


@dataclass(frozen=True)
class CrossValidation:
    """Out-of-fold predictions: each row's comes from a model that saw nothing of its group.

    `table`: problem, kernel, predicted_tflops, fold; one row per predicted pair.
    """

    table: pd.DataFrame
    grouping: str
    n_splits: int


def cross_validate(
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    n_splits: int = 5,
    grouping: str = "problem",
    pool: Sequence[Kernel] | None = None,
    effort: Effort | None = None,
) -> CrossValidation:
    """Every problem of the rows, predicted by a model trained on the other folds.

    With a pool every problem is predicted for every kernel of the pool that matches it, measured or
    not; without one, for the kernels that it has rows of. There are at most as many folds as groups.
    Raises ModelError when there is only one group: nothing is left to learn from.
    """
    effort = effort or Effort()
    groups = fold_codes(rows, grouping)
    count = len(np.unique(groups))
    if count < 2:
        raise ModelError(
            "cross-validation is not possible: all measurements are of one "
            f"{grouping}, so nothing is left to learn from when it is held out; measure at least two"
        )
    n_splits = min(n_splits, count)
    folds = group_folds(groups, n_splits, effort.seed)
    parts = []
    for fold in range(n_splits):
        held = folds == fold
        effort.say(
            f"fold {fold + 1} of {n_splits}: {int((~held).sum())} rows to learn from, "
            f"{int(held.sum())} held out"
        )
        ranker = fit(recipe, rows[~held], arch, replace(effort, report=None))
        parts.append(predicted_pairs(ranker, rows[held], pool, effort.threads).assign(fold=fold))
    return CrossValidation(pd.concat(parts, ignore_index=True), grouping, n_splits)


def predicted_pairs(
    ranker: Ranker, rows: pd.DataFrame, pool: Sequence[Kernel] | None, threads: int
) -> pd.DataFrame:
    """Predictions (problem, kernel, predicted_tflops) for the problems of a training table: for every kernel
    of the pool that matches, measured or not, or without a pool for the pairs of the table. Raises ModelError
    where no kernel matches."""
    if pool is None:
        predicted = ranker.tflops(rows, group_codes(rows), threads)
        return pd.DataFrame(
            {
                "problem": rows["problem"].to_numpy(),
                "kernel": rows["kernel"].to_numpy(),
                "predicted_tflops": predicted,
            }
        )
    frames = []
    one_each = rows.drop_duplicates("problem")
    names = pair_columns_of(records_op(rows))
    problems = [problem_from_row(row) for row in one_each[list(names)].to_dict("records")]
    for kind in sorted({p.kind for p in problems}):
        of_kind = [p for p in problems if p.kind == kind]
        kernels = [kernel for kernel in pool if kernel.matches(of_kind[0])]
        if kernels:
            groups = constant_groups(len(of_kind), len(kernels))
            frames.append(
                pd.DataFrame(
                    {
                        "problem": np.repeat([p.id for p in of_kind], len(kernels)),
                        "kernel": [k.name for k in kernels] * len(of_kind),
                        "predicted_tflops": ranker.tflops(pair_columns(of_kind, kernels), groups, threads),
                    }
                )
            )
    if not frames:
        raise ModelError(
            "no kernel of the pool matches the direction, dtype and rank of any measured problem"
        )
    return pd.concat(frames, ignore_index=True)


def out_of_fold(
    records: pd.DataFrame,
    arch: str,
    pool: Sequence[Kernel] | None = None,
    recipe: str | Recipe = OUT_OF_FOLD_RECIPE,
    n_splits: int = 5,
    seed: int = 0,
    threads: int = 1,
) -> pd.DataFrame:
    """Predictions for a run by a model cross-validated on the run's own records.

    The columns are problem, kernel, predicted_tflops and fold; the pool is the kernels of the records
    unless one is given. Each direction and data type (of GEMM each data type) has models of its own; one
    with fewer than two problems that are ok is left out. Problems without any ok row get predictions too,
    from a model of all the others (fold -1). Raises ModelError when nothing can be cross-validated.
    """
    op = records_op(records)
    chosen = (recipe_named(recipe) if isinstance(recipe, str) else recipe).for_op(op)
    kind_columns = ["dtype"] if op == GemmProblem.op else ["direction", "dtype"]
    effort = Effort(seed, threads)
    usable = training_rows(records)
    candidates = list(pool) if pool is not None else _kernels_of(records)
    tables, reason = [], None
    for kind, rows in usable.table.groupby(kind_columns, sort=True):
        try:
            validation = cross_validate(chosen, rows, arch, n_splits, "problem", candidates, effort)
        except ModelError as error:
            reason = reason or error
            continue
        tables.append(validation.table)
        of_kind = (records[kind_columns] == list(kind)).all(axis=1)
        unmeasured = records[of_kind & ~records["problem"].isin(rows["problem"])].drop_duplicates("problem")
        if len(unmeasured):
            ranker = fit(chosen, rows, arch, effort)
            tables.append(predicted_pairs(ranker, unmeasured, candidates, threads).assign(fold=-1))
    if not tables:
        raise reason or ModelError("no measurements to cross-validate on")
    return pd.concat(tables, ignore_index=True)


def _kernels_of(records: pd.DataFrame) -> list[Kernel]:
    one_each = records.drop_duplicates("kernel").sort_values("kernel")
    op = records_op(records)
    return [kernel_from_row(row, op) for row in one_each[list(pair_columns_of(op))].to_dict("records")]


@dataclass(frozen=True)
class TrainedModel:
    """A ranker with all that its folder holds.

    `checks`: cross-validation by problem and by family; `out_of_fold`: the predictions of the first of
    them; `unchecked`: why there is none, where the data has too few problems; `more_files`: what else goes
    into the folder.
    """

    ranker: Ranker
    spec: ModelSpec
    manifest: Mapping[str, Any]
    checks: tuple[Check, ...]
    out_of_fold: pd.DataFrame | None
    unchecked: str = ""
    more_files: Mapping[str, bytes] = field(default_factory=dict)

    def save(self, folder: Path | str) -> None:
        """Writes the model folder. Raises ModelError."""
        files: dict[str, bytes] = {
            SPEC_FILE: json_bytes(self.spec.as_json()),
            MANIFEST_FILE: json_bytes(self.manifest),
            **self.more_files,
        }
        for member in self.ranker.members:
            files[f"cv_metrics_{member.name}.json"] = json_bytes(metrics_json(self.checks, self.unchecked))
            if isinstance(member, PhysicalModel):
                files[PHYSICAL_FILE] = json_bytes(member.as_json())
        for trees in tree_members(self.ranker):
            for number, booster in enumerate(trees.boosters):
                stem = f"model_{trees.name}" + (f".{number}" if number else "")
                files[f"{stem}.lgbm.gz"] = packed_booster(booster)
            if trees.schema.optional:
                files[CODE_FILE] = json_bytes(trees.code.as_json())
            gains = importances(trees.boosters, trees.feature_names)
            files[f"feature_importances_{trees.name}.json"] = json_bytes(gains)
        if self.out_of_fold is not None:
            buffer = io.BytesIO()
            self.out_of_fold.to_parquet(buffer, index=False)
            files["out_of_fold.parquet"] = buffer.getvalue()
        write_folder(Path(folder), files)


def train(
    records: pd.DataFrame,
    recipe: str | Recipe = "default",
    arch: str | None = None,
    direction: str | None = None,
    dtype: str | None = None,
    targets: Sequence[str] = (),
    n_splits: int = 5,
    effort: Effort | None = None,
    sources: Sequence[str] = (),
    warm_start: Path | str | None = None,
    warm_trees: int = 200,
    hard_example_rounds: int = 0,
    weights: pd.DataFrame | None = None,
    choose: RecipeSearch | None = None,
) -> TrainedModel:
    """A model for one architecture, direction and data type, cross-validated and then fitted to all rows.

    `arch`, `direction` and `dtype` choose rows; each may be left out where the records have only one.
    `targets` adds published targets to the recipe's. `warm_start` grows `warm_trees` further trees on an
    existing model with the same features; it is not cross-validated, since the old model may have seen
    the held-out problems. `hard_example_rounds` repeats the training with more weight on the problems
    that were picked badly, and keeps the best round. `weights`: how much rows count
    (`with_importance`). `choose` looks for a better recipe first (harness.heuristic.compact).

    Raises ModelError for records of several kinds, or of none, for a warm start from a model that does not
    fit, and for weights that are none.
    """
    effort = effort or Effort()
    op = records_op(records)
    chosen = (recipe_named(recipe) if isinstance(recipe, str) else recipe).for_op(op)
    chosen = chosen.with_targets(targets)
    wanted = {"arch": arch, "direction": direction, "dtype": dtype}
    if op == GemmProblem.op:
        if direction is not None:
            raise ModelError(f"the records are of GEMM, which has no direction {direction!r}: leave it out")
        del wanted["direction"]
    kind, records = _one_kind(records, wanted)
    usable = training_rows(records)
    rows = usable.table if weights is None else with_importance(usable.table, weights)
    effort.say(f"{len(rows)} rows of {usable.problems} problems; recipe {chosen.name}: {chosen.meaning}")
    start = None
    if warm_start is not None:
        start = _warm(Path(warm_start), kind)
        chosen = chosen.with_trees(warm_trees)
    if hard_example_rounds and start is None:
        rows, rounds = mine_hard_examples(chosen, rows, kind["arch"], hard_example_rounds, n_splits, effort)
    else:
        rounds = []
    found = RecipeChoice(chosen)
    if choose is not None:
        if start is not None:
            raise ModelError("a warm start keeps the recipe of the model it starts from: none can be chosen")
        found = choose(chosen, rows, kind["arch"], n_splits, effort)
        chosen = found.recipe
    checks, kept, unchecked = [], None, ""
    if start is not None:
        unchecked = "not cross-validated: a warm start's old model may have seen the held-out problems"
        effort.say(unchecked)
    for grouping in GROUPINGS if start is None else ():
        effort.say(f"cross-validating by {grouping}")
        try:
            validation = cross_validate(chosen, rows, kind["arch"], n_splits, grouping, None, effort)
        except ModelError as error:
            unchecked = str(error)
            effort.say(f"  {error}")
            continue
        checks.append(check(rows, validation.table, grouping, validation.n_splits))
        kept = validation.table if kept is None else kept
    effort.say("fitting all rows")
    ranker = fit(chosen, rows, kind["arch"], effort, start)
    spec = spec_of(chosen, ranker, kind, rows, _names(records, "device"))
    manifest = manifest_of(ranker, rows, usable.left_out, records, effort.seed, sources)
    if start is not None:
        old = sum(b.num_trees() for member in tree_members(start) for b in member.boosters)
        manifest |= {
            "warm_start_from": Path(str(warm_start)).name,
            "prev_n_estimators": old,
            "new_n_estimators": manifest["total_n_estimators"] - old,
            "warm_start_manifest": read_json(Path(str(warm_start)) / MANIFEST_FILE),
        }
    if rounds:
        manifest["hard_example_rounds"] = rounds
    manifest |= found.manifest
    return TrainedModel(ranker, spec, manifest, tuple(checks), kept, unchecked, found.files)


def mine_hard_examples(
    recipe: Recipe,
    rows: pd.DataFrame,
    arch: str,
    rounds: int,
    n_splits: int = 5,
    effort: Effort | None = None,
) -> tuple[pd.DataFrame, list[dict[str, float]]]:
    """Rows with the weights of the best round, and every round's cross-validated figures (percent).

    Round 0 weighs all rows alike. In each further round the problems whose out-of-fold pick was under
    95 % count three times as much as before. The best round is the one with the highest mean.
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


def _warm(folder: Path, kind: dict[str, str]) -> Ranker:
    """The model that a warm start goes on from. Raises ModelError when it is of another kind."""
    from harness.heuristic.predictor import Predictor

    old = Predictor.load(folder)
    have = {
        "arch": old.spec.arch,
        "direction": old.spec.direction or kind.get("direction", ""),
        "dtype": old.spec.dtype,
    }
    for name, value in kind.items():
        if have[name] != value:
            raise ModelError(
                f"warm start: {folder} was trained for {name} {have[name]}, the records are {value}"
            )
    return old.ranker


def _one_kind(records: pd.DataFrame, wanted: Mapping[str, str | None]) -> tuple[dict[str, str], pd.DataFrame]:
    """The rows that were asked for, and their one arch, direction and dtype."""
    kind: dict[str, str] = {}
    for name, value in wanted.items():
        found = sorted({str(v) for v in records[name].dropna().unique()}) if name in records else []
        if value is None:
            if len(found) != 1:
                raise ModelError(
                    f"the records have {name} {', '.join(found) or 'nowhere'}: choose one with --{name}"
                )
            value = found[0]
        elif value not in found:
            raise ModelError(
                f"the records have no rows of {name} {value!r}; they have {', '.join(found) or 'none'}"
            )
        records = records[records[name] == value]
        kind[name] = value
    return kind, records


def spec_of(
    recipe: Recipe,
    ranker: Ranker,
    kind: Mapping[str, str],
    rows: pd.DataFrame,
    devices: Sequence[str] = (),
) -> ModelSpec:
    """feature_spec.json of a ranker; `kind` has arch, dtype and, for convolutions, direction."""
    trees = tree_members(ranker)
    first = trees[0] if trees else None
    physical = next((member for member in ranker.members if isinstance(member, PhysicalModel)), None)
    schema = first.schema if first else physical.schema if physical else None
    if schema is None:
        raise ModelError(f"recipe {recipe.name} has no member to train")
    settings = {part.target: asdict(part.settings) for part in recipe.trees}
    return ModelSpec(
        op_type=schema.op,
        dtype=kind["dtype"],
        arch=kind["arch"],
        feature_names=first.feature_names if first else schema.names,
        categorical_features=schema.categorical if first else (),
        targets=tuple(member.name for member in ranker.members),
        log_targets=tuple(member.name for member in trees if member.target.logged),
        params=settings[first.name] if first and len(trees) == 1 else settings,
        direction=kind.get("direction"),
        ndims=tuple(sorted(int(value) for value in rows["ndim"].unique())) if "ndim" in rows else (),
        schema=schema.name,
        recipe=recipe.name,
        picks=dict(ranker.weights),
        members={member.name: len(member.boosters) for member in trees if len(member.boosters) > 1},
        feature_names_of={
            member.name: member.feature_names
            for member in trees
            if first and member.feature_names != first.feature_names
        },
        aliases=ranker.aliases.as_json() if ranker.aliases.representative else {},
        devices=tuple(devices),
    )


def manifest_of(
    ranker: Ranker,
    rows: pd.DataFrame,
    left_out: Mapping[str, int],
    records: pd.DataFrame,
    seed: int,
    sources: Sequence[str],
) -> dict[str, Any]:
    """train_manifest.json of a ranker that was fitted to training rows of these records."""
    total = sum(booster.num_trees() for member in tree_members(ranker) for booster in member.boosters)
    return {
        "warm_start_from": None,
        "prev_n_estimators": 0,
        "new_n_estimators": total,
        "total_n_estimators": total,
        "data_rows": len(records),
        "valid_rows": len(rows),
        "unique_shapes": int(rows["problem"].nunique()),
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "left_out": dict(left_out),
        "sources": list(sources),
        "runs": _names(records, "run")[:_MOST_RUNS],
        "seed": seed,
        "kernels": sorted(rows["kernel"].unique()),
        "harness_version": __version__,
        "lightgbm_version": lgb.__version__,
    }


def _names(records: pd.DataFrame, column: str) -> list[str]:
    """What the records say in a column, sorted; nothing where they do not have it."""
    return sorted({str(name) for name in records[column].dropna()} - {""}) if column in records else []
