"""The JSON files of a trained model's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import lightgbm as lgb
import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.schemas.roofline import FITTED_TO
from tile_oracle.model.made_by import CONSTANTS_KEY, MADE_BY_KEY, MadeBy
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.model.network import NAME as NETWORK
from tile_oracle.model.ranker import Ranker
from tile_oracle.training.grow_network import PRIOR
from tile_oracle.training.recipe import Recipe
from tile_oracle.training.trained_on import PROBLEMS_KEY, problem_digests
from tile_oracle.training.training_rows import training_rows
from tile_oracle.version import __version__

_MOST_RUNS = 100


def spec_of(
    recipe: Recipe,
    ranker: Ranker,
    kind: Mapping[str, str],
    rows: pd.DataFrame,
    devices: Sequence[str] = (),
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
        aliases=ranker.aliases.as_json() if ranker.aliases.representative else {},
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
