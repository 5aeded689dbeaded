"""Records -> trained model: cross-validation that never splits a problem, then a fit on every row."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightgbm as lgb
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.groups import GROUPINGS
from tile_oracle.features.schemas.roofline import FITTED_TO
from tile_oracle.files.vouched_files import MANIFEST_FILE
from tile_oracle.kernel import source_of
from tile_oracle.model.made_by import CONSTANTS_KEY, MADE_BY_KEY, MadeBy
from tile_oracle.model.model_folder import ModelSpec, packed_booster
from tile_oracle.model.network import NAME as NETWORK
from tile_oracle.model.ranker import Ranker
from tile_oracle.model.store import (
    CODE_FILE,
    NETWORK_FILE,
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
from tile_oracle.record.final import records_op
from tile_oracle.training.cross_validation import Check, check, cross_validate, metrics_json
from tile_oracle.training.fit import Effort, fit
from tile_oracle.training.grow_network import PRIOR
from tile_oracle.training.recipe import Recipe, recipe_named, suited_recipe
from tile_oracle.training.trained_on import PROBLEMS_KEY, problem_digests
from tile_oracle.training.training_rows import auxiliary_rows, training_rows, with_auxiliary
from tile_oracle.training.warm_start import WarmStart
from tile_oracle.version import __version__

# ---- The JSON files of a trained model's folder --------------------------------------------------

_MOST_RUNS = 100


def spec_of(
    recipe: Recipe, ranker: Ranker, kind: Mapping[str, str], rows: pd.DataFrame, devices: Sequence[str] = ()
) -> ModelSpec:
    """feature_spec.json of a ranker; `kind` has arch, dtype and, for convolutions, direction."""
    trees, physical = ranker.trees, ranker.physical
    first = trees[0] if trees else None
    reads = first or ranker.network
    schema = reads.schema if reads else physical.schema if physical else None
    if schema is None:
        raise ModelError(f"recipe {recipe.name} has no member to train")
    settings: dict[str, dict[str, Any]] = {part.target: asdict(part.settings) for part in recipe.trees}
    if recipe.network is not None:
        settings[NETWORK] = asdict(recipe.network.settings)
    return ModelSpec(
        op_type=schema.op,
        dtype=kind["dtype"],
        arch=kind["arch"],
        feature_names=reads.feature_names if reads else schema.names,
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
        aliases=ranker.aliases,
        devices=tuple(devices),
        layouts=tuple(names_in(rows, "layout")),
    )


def manifest_of(
    ranker: Ranker,
    rows: pd.DataFrame,
    left_out: Mapping[str, int],
    records: pd.DataFrame,
    seed: int,
    sources: Sequence[str],
    other_builds: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """train_manifest.json of a ranker that was fitted to training rows of these records.

    other_builds: records of the same kind from other compilers or devices that it learned from, too.
    """
    problems, made_by = problem_digests(rows), MadeBy.of_records(records)
    if other_builds is not None:
        problems = {**problem_digests(training_rows(other_builds).table), **problems}
        made_by = made_by.and_of(MadeBy.of_records(other_builds))
    total = sum(booster.num_trees() for member in ranker.trees for booster in member.boosters)
    networks = () if ranker.network is None else (ranker.network,)
    reads_roofline = any(PRIOR in member.schema.names for member in (*ranker.trees, *networks))
    return {
        "warm_start_from": None,
        "prev_n_estimators": 0,
        "new_n_estimators": total,
        "total_n_estimators": total,
        "data_rows": len(records),
        "valid_rows": len(rows),
        "unique_shapes": int(rows["problem"].nunique()),
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "left_out": dict(left_out),
        "sources": list(sources),
        "runs": names_in(records, "run")[:_MOST_RUNS],
        "seed": seed,
        "kernels": sorted(rows["kernel"].unique()),
        PROBLEMS_KEY: problems,
        MADE_BY_KEY: made_by.as_json(),
        **({CONSTANTS_KEY: [FITTED_TO]} if reads_roofline else {}),
        "harness_version": __version__,
        "lightgbm_version": lgb.__version__,
    }


def names_in(records: pd.DataFrame, column: str) -> list[str]:
    """Returns the sorted values of a column of the records; empty without the column."""
    return sorted({str(name) for name in records[column].dropna()} - {""}) if column in records else []


@dataclass(frozen=True)
class TrainedModel:
    """A ranker with everything that its folder holds.

    `checks`: cross-validation by problem and by family. `out_of_fold`: the predictions of the first of them.
    `unchecked`: why there is no cross-validation. `other_builds`: the records from other compilers or devices
    that it learned from, too.
    """

    ranker: Ranker
    spec: ModelSpec
    manifest: Mapping[str, Any]
    checks: tuple[Check, ...]
    out_of_fold: pd.DataFrame | None
    unchecked: str = ""
    other_builds: pd.DataFrame | None = None
    old_metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The cross-validation of the model that this one was grown from."""

    def save(self, folder: Path | str) -> None:
        """Writes the model folder. Raises ModelError."""
        files: dict[str, bytes] = {
            SPEC_FILE: json_bytes(self.spec.as_json()),
            MANIFEST_FILE: json_bytes(self.manifest),
        }
        for member in self.ranker.members:
            metrics = {**self.old_metrics.get(member.name, {}), **metrics_json(self.checks, self.unchecked)}
            files[metrics_file(member.name)] = json_bytes(metrics)
        for name, part in ((PHYSICAL_FILE, self.ranker.physical), (NETWORK_FILE, self.ranker.network)):
            if part is not None:
                files[name] = json_bytes(part.as_json())
        for trees in self.ranker.trees:
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
    n_splits: int = 5,
    effort: Effort | None = None,
    sources: Sequence[str] = (),
    warm_start: Path | str | None = None,
    warm_trees: int = 200,
    also: pd.DataFrame | None = None,
    code: CodeTable | None = None,
) -> TrainedModel:
    """Returns a model for one architecture, direction and data type, cross-validated and then fitted to all
    rows.

    `arch`, `direction` and `dtype` select rows; each is optional if the records have only one.
    `recipe`: by default the one that suits the records (`suited_recipe`), or the old model's in a warm start.
    `warm_start` grows `warm_trees` further trees on every booster of an existing model with the same
    features; it is not cross-validated, because the old model may have seen the held-out problems. `also`:
    records with auxiliary training data (training.training_rows); each fold leaves out those of its held-out
    shapes.
    `code`: metrics of further binaries for the model folder.

    Raises ModelError for records of several kinds or of none, for a warm start from a model that does not
    fit, and for `also` without usable rows.
    """
    effort = effort or Effort()
    data = _training_data(records, arch, direction, dtype)
    rows, kind, on = data.rows, data.kind, data.kind["arch"]
    start = None if warm_start is None else WarmStart.of(Path(warm_start), kind).over(rows)
    chosen = _recipe(recipe, data, start, warm_trees)
    effort.say(f"{len(rows)} rows of {data.problems} problems; recipe {chosen.name}: {chosen.meaning}")
    auxiliary = None if also is None else _auxiliary_rows(also, data, effort)
    train_rows = rows if auxiliary is None else with_auxiliary(rows, auxiliary)
    if start is None:
        checks, out_of_fold, unchecked = _cross_validated(chosen, rows, train_rows, on, n_splits, effort)
    else:
        checks, out_of_fold = (), start.out_of_fold
        unchecked = (
            "the cross-validation is of the model that this one was grown from, which may have seen the "
            "problems that a fold would hold out"
        )
        effort.say(unchecked)
    effort.say("fitting all rows")
    ranker = fit(chosen, train_rows, on, effort, None if start is None else start.ranker)
    if code is not None:
        ranker = ranker.knowing(code)
    spec = spec_of(chosen, ranker, kind, rows, names_in(data.records, "device"))
    other_builds = _of_kind(also, kind)
    manifest = {
        **manifest_of(ranker, rows, data.left_out, data.records, effort.seed, sources, other_builds),
        **({} if start is None else start.lineage(ranker)),
        **({} if auxiliary is None else {"taught_by": _rows_by_kind(auxiliary)}),
    }
    return TrainedModel(
        ranker,
        spec,
        manifest,
        checks,
        out_of_fold,
        unchecked,
        other_builds,
        {} if start is None else start.metrics,
    )


@dataclass(frozen=True)
class _TrainingData:
    """The records of one kind (arch, dtype and, for convolutions, direction), and their training rows."""

    op: str
    kind: dict[str, str]
    records: pd.DataFrame
    rows: pd.DataFrame
    problems: int
    left_out: Mapping[str, int]


def _training_data(
    records: pd.DataFrame, arch: str | None, direction: str | None, dtype: str | None
) -> _TrainingData:
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
    return _TrainingData(op, kind, records, usable.table, usable.problems, usable.left_out)


def _one_kind(records: pd.DataFrame, wanted: Mapping[str, str | None]) -> tuple[dict[str, str], pd.DataFrame]:
    """Returns the requested rows, and their arch, direction and dtype, one of each."""
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


def _recipe(
    named: str | Recipe | None,
    data: _TrainingData,
    start: WarmStart | None,
    warm_trees: int,
) -> Recipe:
    """Returns the requested recipe, else that of the warm start's model or the one that suits the records."""
    if start is not None:
        return start.recipe(named, data.rows).with_trees(warm_trees)
    if named is None:
        named = _suited(data)
    recipe = recipe_named(named) if isinstance(named, str) else named
    return recipe.for_rows(data.rows)


def _suited(data: _TrainingData) -> str:
    """Returns the recipe that suits such records."""
    has_code = bool(CodeTable.of(data.rows).facts)
    several = any(map(source_of, data.rows["kernel"].unique()))
    return suited_recipe(data.op, data.kind["arch"], has_code=has_code, several=several)


def _auxiliary_rows(also: pd.DataFrame, data: _TrainingData, effort: Effort) -> pd.DataFrame:
    auxiliary = auxiliary_rows(also, data.records, data.kind)
    counts = _rows_by_kind(auxiliary).items()
    effort.say(f"auxiliary training data: {', '.join(f'{count} rows of {name}' for name, count in counts)}")
    return auxiliary


def _of_kind(also: pd.DataFrame | None, kind: Mapping[str, str]) -> pd.DataFrame | None:
    """Returns the auxiliary records of the model's own kind: problems that it knows, from another build."""
    if also is None:
        return None
    for name, value in kind.items():
        also = also[also[name] == value]
    return None if also.empty else also


def _rows_by_kind(rows: pd.DataFrame) -> dict[str, int]:
    """Rows of each direction; of each data type, where there are no directions."""
    kinds = rows["direction" if "direction" in rows else "dtype"].value_counts().sort_index()
    return {str(name): int(count) for name, count in kinds.items()}


def _cross_validated(
    recipe: Recipe, rows: pd.DataFrame, train_rows: pd.DataFrame, arch: str, n_splits: int, effort: Effort
) -> tuple[tuple[Check, ...], pd.DataFrame | None, str]:
    """Cross-validation by problem and by family; the predictions of the first; why there is none
    (`TrainedModel`). train_rows: the rows, including auxiliary ones."""
    checks, kept, unchecked = [], None, ""
    for grouping in GROUPINGS:
        effort.say(f"cross-validating by {grouping}")
        try:
            validation = cross_validate(recipe, train_rows, arch, n_splits, grouping, None, effort)
        except ModelError as error:
            unchecked = str(error)
            effort.say(f"  {error}")
            continue
        checks.append(check(rows, validation.table, grouping, validation.n_splits, scores=recipe.orders_only))
        kept = validation.table if kept is None else kept
    return tuple(checks), kept, unchecked
