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

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.groups import GROUPINGS
from tile_oracle.model.model_folder import ModelSpec, packed_booster
from tile_oracle.model.physics import PhysicalModel
from tile_oracle.model.ranker import (
    Ranker,
    tree_members,
)
from tile_oracle.model.store import (
    CODE_FILE,
    OUT_OF_FOLD_FILE,
    PHYSICAL_FILE,
    SPEC_FILE,
    booster_file,
    importances_file,
    json_bytes,
    metrics_file,
    write_folder,
)
from tile_oracle.model.trees import importances
from tile_oracle.operation import operation_named
from tile_oracle.oracle import records_op
from tile_oracle.selection import summarise
from tile_oracle.training.auxiliary_rows import records_that_teach, with_companions
from tile_oracle.training.cross_validation import cross_validate
from tile_oracle.training.cross_validation_metrics import Check, check, metrics_json, selection_of
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.recipe import Recipe, recipe_named, suited_recipe
from tile_oracle.training.trained_on import PROBLEMS_KEY, problem_digests
from tile_oracle.training.training_rows import IMPORTANCE, training_rows, with_importance
from tile_oracle.training.warm_start import WarmStart
from tile_oracle.version import __version__
from tile_oracle.vouched_files import MANIFEST_FILE

_MOST_RUNS = 100
_HARD_UNDER = 0.95
_HARD_WEIGHT = 3.0


@dataclass(frozen=True)
class RecipeChoice:
    """A recipe that was found by trying several, and what the manifest and the folder keep of the search."""

    recipe: Recipe
    manifest: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


RecipeSearch = Callable[[Recipe, pd.DataFrame, str, int, Effort], RecipeChoice]
"""Recipe, training rows, architecture, folds, effort -> the recipe that is trained in its place."""


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
            files[metrics_file(member.name)] = json_bytes(metrics_json(self.checks, self.unchecked))
            if isinstance(member, PhysicalModel):
                files[PHYSICAL_FILE] = json_bytes(member.as_json())
        for trees in tree_members(self.ranker):
            for number, booster in enumerate(trees.boosters):
                files[booster_file(trees.name, number)] = packed_booster(booster)
            if trees.schema.optional:
                files[CODE_FILE] = json_bytes(trees.code.as_json())
            gains = importances(trees.boosters, trees.feature_names)
            files[importances_file(trees.name)] = json_bytes(gains)
        if self.out_of_fold is not None:
            buffer = io.BytesIO()
            self.out_of_fold.to_parquet(buffer, index=False)
            files[OUT_OF_FOLD_FILE] = buffer.getvalue()
        write_folder(Path(folder), files)


def train(
    records: pd.DataFrame,
    recipe: str | Recipe | None = None,
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
    also: pd.DataFrame | None = None,
    code: CodeTable | None = None,
) -> TrainedModel:
    """A model for one architecture, direction and data type, cross-validated and then fitted to all rows.

    `arch`, `direction` and `dtype` choose rows; each may be left out where the records have only one.
    `recipe`: by default what suits them (`suited_recipe`), or the old model's in a warm start.
    `targets` adds published targets to the recipe's. `warm_start` grows `warm_trees` further trees on every
    booster of an existing model with the same features; it is not cross-validated, since the old model may
    have seen the held-out problems. `hard_example_rounds` repeats the training with more weight on the
    problems that were picked badly, and keeps the best round. `weights`: how much rows count
    (`with_importance`). `choose` looks for a better recipe first (training.compact). `also`: records
    whose rows of other directions teach as well (training.auxiliary_rows); in a fold those of held-out
    shapes do not. `code`: figures of further kernels' binaries for the folder.

    Raises ModelError for records of several kinds, or of none, for a warm start from a model that does not
    fit, for weights that are none, and for `also` where nothing of it can teach, or together with `choose` or
    hard examples.
    """
    effort = effort or Effort()
    op = records_op(records)
    wanted = {"arch": arch, "direction": direction, "dtype": dtype}
    operation = operation_named(op)
    if "direction" not in operation.kind_fields:
        if direction is not None:
            raise ModelError(
                f"the records are of {operation.plural}, which have no direction {direction!r}: leave it out"
            )
        del wanted["direction"]
    kind, records = _one_kind(records, wanted)
    usable = training_rows(records)
    rows = usable.table if weights is None else with_importance(usable.table, weights)
    start = None if warm_start is None else WarmStart.of(Path(warm_start), kind)
    if start is not None:
        chosen = start.recipe(recipe, op, targets).with_trees(warm_trees)
    else:
        if recipe is None:
            recipe = suited_recipe(op, kind["arch"], has_code=bool(CodeTable.of(rows).figures))
        named = recipe_named(recipe) if isinstance(recipe, str) else recipe
        chosen = named.for_op(op).with_targets(targets)
    effort.say(f"{len(rows)} rows of {usable.problems} problems; recipe {chosen.name}: {chosen.meaning}")
    teaching, taught_by = None, dict[str, int]()
    if also is not None:
        if choose is not None or hard_example_rounds:
            raise ModelError("records that teach as well go with neither a smaller model nor hard examples")
        teaching = training_rows(records_that_teach(also, kind)).table
        taught_by = {
            str(name): int(n) for name, n in teaching["direction"].value_counts().sort_index().items()
        }
        effort.say(f"taught as well by {', '.join(f'{n} rows of {name}' for name, n in taught_by.items())}")
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
    learnt = rows if teaching is None else with_companions(rows, teaching)
    checks, kept, unchecked = [], None, ""
    if start is not None:
        unchecked = "not cross-validated: a warm start's old model may have seen the held-out problems"
        effort.say(unchecked)
    for grouping in GROUPINGS if start is None else ():
        effort.say(f"cross-validating by {grouping}")
        try:
            validation = cross_validate(chosen, learnt, kind["arch"], n_splits, grouping, None, effort)
        except ModelError as error:
            unchecked = str(error)
            effort.say(f"  {error}")
            continue
        checks.append(check(rows, validation.table, grouping, validation.n_splits, scores=chosen.orders_only))
        kept = validation.table if kept is None else kept
    effort.say("fitting all rows")
    ranker = fit(chosen, learnt, kind["arch"], effort, None if start is None else start.ranker)
    if code is not None:
        ranker = ranker.knowing(code)
    spec = spec_of(chosen, ranker, kind, rows, _names(records, "device"))
    manifest = manifest_of(ranker, rows, usable.left_out, records, effort.seed, sources)
    if start is not None:
        manifest |= start.lineage(ranker)
    if rounds:
        manifest["hard_example_rounds"] = rounds
    if taught_by:
        manifest["taught_by"] = taught_by
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
        PROBLEMS_KEY: problem_digests(rows),
        "harness_version": __version__,
        "lightgbm_version": lgb.__version__,
    }


def _names(records: pd.DataFrame, column: str) -> list[str]:
    """What the records say in a column, sorted; nothing where they do not have it."""
    return sorted({str(name) for name in records[column].dropna()} - {""}) if column in records else []
