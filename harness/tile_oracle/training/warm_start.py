"""Warm start: every booster of an existing model grows further, each on its own target, and its networks go
on learning.

The grown model keeps the old one's members, features, aliases and picking weights, and each booster begins
with the old booster's trees. Settings that would drop a member are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.schemas import schema_named
from tile_oracle.files.vouched_files import FILES
from tile_oracle.model.model_folder import ModelSpec
from tile_oracle.model.ranker import Ranker, TreeMember
from tile_oracle.model.store import OUT_OF_FOLD_FILE, metrics_file, read_json, read_manifest
from tile_oracle.model.trees import PUBLISHED_SETTINGS, TreeSettings
from tile_oracle.training.grow_network import NetworkSettings
from tile_oracle.training.recipe import RECIPES, NetworkPart, Recipe, TreePart, recipe_named


@dataclass(frozen=True)
class WarmStart:
    """The model to grow further."""

    folder: Path
    spec: ModelSpec
    ranker: Ranker
    out_of_fold: pd.DataFrame | None
    """Predictions of its cross-validation, if the folder has them."""
    metrics: Mapping[str, Mapping[str, Any]]
    """Member -> cv_metrics of the folder."""

    @classmethod
    def of(cls, folder: Path, kind: Mapping[str, str]) -> WarmStart:
        """Returns the model in a folder. Raises ModelError when it was trained for another kind than `kind`
        (arch, dtype and, for convolutions, direction), or has no trees."""
        from tile_oracle.model.predictor import Predictor

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
        if not old.ranker.trees:
            raise ModelError(f"warm start: {folder} has no trees to grow: train without --warm-start")
        tested = folder / OUT_OF_FOLD_FILE
        metrics = {name: folder / metrics_file(name) for name in old.spec.targets}
        return cls(
            folder,
            old.spec,
            old.ranker,
            pd.read_parquet(tested) if tested.is_file() else None,
            {name: read_json(path) for name, path in metrics.items() if path.is_file()},
        )

    def recipe(self, named: str | Recipe | None, rows: pd.DataFrame) -> Recipe:
        """Returns the recipe that grows every tree member of the model: targets of the named recipe with its
        settings, others with those they were trained with.

        rows: the training rows. named: the requested recipe; by default the model's own. Raises ModelError
        for a recipe with a member that the model lacks, or with other features.
        """
        known = RECIPES.get(self.spec.recipe or "")
        if named is None:
            own = None if known is None else known.for_rows(rows)
            wanted = Recipe(self.spec.recipe or "published", "the old model's own") if own is None else own
        else:
            wanted = (recipe_named(named) if isinstance(named, str) else named).for_rows(rows)
        parts = {part.target: part for part in wanted.trees}
        for part in parts.values():
            self._check(part, old_trees(self.ranker, part))
        trees = []
        for member in self.ranker.trees:
            part = parts.get(member.name) or TreePart(
                member.name, member.schema.name, self._settings(member.name)
            )
            part = replace(part, schema=member.schema.name, ensemble=len(member.boosters), strongest=0)
            trees.append(part)
        network = self.ranker.network
        return replace(
            wanted,
            trees=tuple(trees),
            network=None
            if network is None
            else NetworkPart(network.schema.name, NetworkSettings.further(network)),
            weights=dict(self.ranker.weights),
            physical=self.ranker.physical is not None,
        )

    def _check(self, part: TreePart, member: TreeMember) -> None:
        if member.schema.name == part.schema:
            return
        wanted, have = set(schema_named(part.schema).names), set(member.feature_names)
        raise ModelError(
            f"warm start: the old model's features are not those of {part.schema} "
            f"(missing {', '.join(sorted(wanted - have)) or 'none'}; "
            f"unknown {', '.join(sorted(have - wanted)) or 'none'})"
        )

    def _settings(self, target: str) -> TreeSettings:
        """Returns the settings that a member was trained with; the published ones if the folder does not have
        them."""
        params: Any = self.spec.params.get(target, self.spec.params)
        names = {field.name for field in fields(TreeSettings)}
        if isinstance(params, Mapping) and set(params) == names:
            return TreeSettings(**params)
        return PUBLISHED_SETTINGS

    def over(self, rows: pd.DataFrame) -> WarmStart:
        """Returns it without its cross-validation, if that was over other problems than these rows have."""
        known = (
            self.out_of_fold is not None and self.out_of_fold["problem"].isin(rows["problem"].unique()).all()
        )
        return self if known else replace(self, out_of_fold=None, metrics={})

    def lineage(self, grown: Ranker) -> dict[str, Any]:
        """Returns the entries of train_manifest.json on the old model and on the trees that each member had
        and gained."""
        before, after = _tree_counts(self.ranker), _tree_counts(grown)
        return {
            "warm_start_from": self.folder.name,
            "prev_n_estimators": sum(before.values()),
            "new_n_estimators": sum(after.values()) - sum(before.values()),
            "n_estimators_of": {
                name: {"prev": count, "new": after[name] - count} for name, count in before.items()
            },
            "warm_start_manifest": _of_parent(read_manifest(self.folder)),
        }


def _of_parent(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a grown model keeps of the manifest of the old one, and of those that it grew from: not
    the names of kernels, which are most of it, nor the digests of files that are elsewhere."""
    older = manifest.get("warm_start_manifest")
    kept = {name: value for name, value in manifest.items() if name not in ("kernels", FILES)}
    return kept | ({"warm_start_manifest": _of_parent(older)} if isinstance(older, dict) else {})


def old_trees(start: Ranker, part: TreePart) -> TreeMember:
    """Returns the member of the old model that a part grows. Raises ModelError."""
    for member in start.trees:
        if member.name == part.target:
            return member
    have = ", ".join(member.name for member in start.trees)
    raise ModelError(f"warm start: the old model has no member {part.target}; it has {have}")


def _tree_counts(ranker: Ranker) -> dict[str, int]:
    return {m.name: sum(booster.num_trees() for booster in m.boosters) for m in ranker.trees}
