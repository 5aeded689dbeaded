"""Recipes: the members of a model, their features and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import source_of
from tile_oracle.model.network import NAME as NETWORK
from tile_oracle.model.trees import PUBLISHED_SETTINGS, TreeSettings, target_named
from tile_oracle.operation import operation_named
from tile_oracle.record.final import records_op
from tile_oracle.training.grow_network import NetworkSettings

OWN, PUBLISHED, LAUNCH = "own", "published", "launch"
"""Features by their role; an operation says which of its schemas has it (`OperationFeatures`)."""


@dataclass(frozen=True)
class TreePart:
    """A tree member: its target, its features and the settings of its trees."""

    target: str
    schema: str = OWN
    """A role, or the name of a schema."""
    settings: TreeSettings = field(default_factory=TreeSettings)
    ensemble: int = 1
    """Number of averaged boosters (seeds)."""
    near_best: bool = False
    """Whether rows near the best of their problem have more weight."""
    strongest: int = 0
    """Read only this many features, those with the most gain in a first training on the same rows; 0: all."""


@dataclass(frozen=True)
class NetworkPart:
    """Networks (model.network). schema: their features; "" until the records are known."""

    schema: str = ""
    settings: NetworkSettings = field(default_factory=NetworkSettings)


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a training except the data and the seed."""

    name: str
    meaning: str
    trees: tuple[TreePart, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each member in the pick; by default equal for all tree members."""
    physical: bool = False
    """Merge the names of one kernel, and fit a physical time model, which the target `correction` needs."""
    network: NetworkPart | None = None
    """Train networks, for kernels of several sources."""

    def for_rows(self, rows: pd.DataFrame) -> Recipe:
        """Returns the recipe for records or training rows: with the features of their operation, and, where
        kernels of several sources are among them, with those that are read from kernels' names. Raises
        ModelError if it cannot be trained on such rows."""
        features = operation_named(records_op(rows)).for_models
        if features.pool is None or not any(map(source_of, rows["kernel"].unique())):
            return self.for_op(records_op(rows))
        if self.physical:
            raise ModelError(f"recipe {self.name} has no physical time model of kernels of several sources")
        parts = tuple(replace(part, schema=features.pool.name) for part in self.trees)
        network = None if self.network is None else replace(self.network, schema=features.pool.name)
        return replace(self, trees=parts, network=network)

    def for_op(self, op: str) -> Recipe:
        """Returns the recipe with the features of an operation. Raises ModelError if the operation lacks what
        the recipe is made of."""
        operation = operation_named(op)
        features = operation.for_models
        if self.physical and features.time_terms is None:
            raise ModelError(f"recipe {self.name} has no physical time model of {operation.plural}")
        roles = {OWN: features.own.name, PUBLISHED: features.own.name, **features.in_recipes}
        if any(part.schema == LAUNCH and LAUNCH not in roles for part in self.trees):
            raise ModelError(f"recipe {self.name} does not know how {operation.plural} are launched")
        parts = tuple(replace(part, schema=roles.get(part.schema, part.schema)) for part in self.trees)
        return replace(self, trees=parts)

    @property
    def orders_only(self) -> bool:
        """Whether scores decide its picks: see `Ranker.orders_only`."""
        targets = {part.target for part in self.trees}
        scored = any(target_named(name).is_score for name in self.picking_weights if name in targets)
        return scored or NETWORK in self.picking_weights

    @property
    def reads_code(self) -> bool:
        """Whether a member reads metrics of binaries."""
        return any(schema_named(part.schema).optional for part in self.trees)

    @property
    def needs_code(self) -> bool:
        """Whether a member is of no use without metrics of binaries. Libraries' algorithms have none."""
        schemas = [schema_named(part.schema) for part in self.trees]
        return any(schema.optional and not schema.from_names for schema in schemas)

    def with_trees(self, trees: int) -> Recipe:
        """Returns the recipe whose members grow this many trees."""
        parts = (replace(part, settings=replace(part.settings, trees=trees)) for part in self.trees)
        return replace(self, trees=tuple(parts))

    @property
    def picking_weights(self) -> Mapping[str, float]:
        if self.weights:
            return self.weights
        if self.network is not None and not self.trees:
            return {NETWORK: 1.0}
        return {part.target: 1.0 for part in self.trees} if self.trees else {"physical": 1.0}


_LARGER_TREES = TreeSettings(num_leaves=31)
_LAUNCH_TREES = replace(_LARGER_TREES, trees=1000, min_child_samples=20)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "physical",
            "names of one kernel merged; physical time model, corrected by small trees (convolutions)",
            (TreePart("correction", OWN, TreeSettings(trees=100), near_best=True, strongest=15),),
            {"physical": 0.4, "correction": 0.6},
            physical=True,
        ),
        Recipe(
            "published",
            "published features, log1p(TFLOPS), published parameters",
            (TreePart("tflops", PUBLISHED, PUBLISHED_SETTINGS),),
        ),
        Recipe("log_time", "ln(time)", (TreePart("log_time"),)),
        Recipe("lambdarank", "order of the kernels (LambdaRank)", (TreePart("lambdarank"),)),
        Recipe(
            "launch",
            "LambdaRank, two seeds, with launch parameters and metrics of binaries (convolutions)",
            (TreePart("lambdarank", LAUNCH, _LAUNCH_TREES, 2),),
        ),
        Recipe(
            "two_orders",
            "mean of LambdaRank and of ln(efficiency) with more weight for rows near the best",
            (
                TreePart("lambdarank", OWN, _LARGER_TREES),
                TreePart("log_efficiency", OWN, _LARGER_TREES, near_best=True),
            ),
            {"lambdarank": 0.15, "log_efficiency": 0.85},
        ),
        Recipe(
            "network",
            "four small neural networks that correct the roofline, and LambdaRank; for several sources",
            (TreePart("lambdarank", OWN, _LARGER_TREES),),
            {"lambdarank": 0.05, "network": 0.95},
            network=NetworkPart(),
        ),
        Recipe(
            "network_and_trees",
            "four smaller networks, ln(efficiency) trees, less weighed, some LambdaRank; for several sources",
            (
                TreePart("lambdarank", OWN, _LARGER_TREES),
                TreePart("log_efficiency", OWN, _LARGER_TREES, 2, near_best=True),
            ),
            {"lambdarank": 0.02, "log_efficiency": 0.29, "network": 0.69},
            network=NetworkPart(settings=NetworkSettings(hidden=(128, 64))),
        ),
    )
}
"""The recipes by name."""


SUITED = (
    "the best known: physical for convolutions on AMD's GPUs; launch for those on sm_90; network for GEMM "
    "kernels of several sources on sm_90, two_orders for those of one; else lambdarank"
)
"""The results of `suited_recipe`, for help texts."""


def suited_recipe(op: str, arch: str, *, has_code: bool, several: bool = False) -> str:
    """Returns the name of the recipe that did best on measurements of such kernels (docs/heuristic.md,
    docs/gemm.md).

    has_code: whether the records have metrics of the kernels' binaries. several: whether kernels of Triton
    files or libraries are among them. Convolutions on architectures without measurements use the recipe of
    their kind: gfx950's for AMD GPUs, sm_90's for NVIDIA GPUs.
    """
    amd, convolution = arch.startswith("gfx"), "launch" in operation_named(op).for_models.in_recipes
    if amd or arch == "cpu":
        return "physical" if amd and convolution else "lambdarank"
    if op == "gemm":
        return "network" if several else "two_orders"
    return "launch" if has_code and convolution else "lambdarank"


def recipe_named(name: str) -> Recipe:
    """Raises ModelError listing the known recipes."""
    try:
        return RECIPES[name]
    except KeyError:
        raise ModelError(f"no recipe {name!r}; known: {', '.join(RECIPES)}") from None
