"""Recipes: the members of a model, their features and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel.named import is_named
from tile_oracle.model.network import NAME as NETWORK
from tile_oracle.model.tree_targets import target_named
from tile_oracle.model.trees import PUBLISHED_SETTINGS, TreeSettings
from tile_oracle.operation import operation_named
from tile_oracle.record.final import records_op
from tile_oracle.training.grow_network import NetworkSettings


@dataclass(frozen=True)
class TreePart:
    """A tree member: its target, its features and the settings of its trees.

    ensemble: number of averaged boosters (seeds). near_best: rows near the best of their problem have more
    weight. strongest: read only this many features, those with the most gain in a first training on the same
    rows; 0: all.
    """

    target: str
    schema: str
    settings: TreeSettings = field(default_factory=TreeSettings)
    ensemble: int = 1
    near_best: bool = False
    strongest: int = 0


@dataclass(frozen=True)
class NetworkPart:
    """Networks (model.network). schema: their features; "" until the records are known."""

    schema: str = ""
    settings: NetworkSettings = field(default_factory=NetworkSettings)


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a training except the data and the seed.

    `aliases`: merge names of one kernel first. `physical`: fit a physical time model (a part with the target
    `correction` needs it). `network`: train a network, for kernels of several sources. `weights`: weight of
    each member in the pick; by default equal for all tree members.
    """

    name: str
    meaning: str
    trees: tuple[TreePart, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    aliases: bool = False
    physical: bool = False
    network: NetworkPart | None = None

    def with_targets(self, targets: Sequence[str]) -> Recipe:
        """The recipe with these targets added, trained like its first member; picks do not change.

        Raises ModelError for an unknown target.
        """
        have = {part.target for part in self.trees}
        wanted = [target_named(name).name for name in dict.fromkeys(targets) if name not in have]
        if "correction" in wanted:
            raise ModelError("the target correction needs a physical model: train the recipe `default`")
        like = self.trees[0] if self.trees else TreePart("log_time", OWN)
        more = tuple(replace(like, target=name) for name in wanted)
        return replace(self, trees=(*self.trees, *more), weights=dict(self.picking_weights))

    def for_rows(self, rows: pd.DataFrame) -> Recipe:
        """The recipe for records or training rows: with the features of their operation, and, where kernels
        of several sources are among them, with those that are read from kernels' names."""
        op = records_op(rows)
        pool = operation_named(op).for_models.pool
        if pool is None or not any(map(is_named, rows["kernel"].unique())):
            return self.for_op(op)
        own = _TREES_ALONE.get(self.name, self) if self is RECIPES.get(self.name) else self
        parts = tuple(replace(part, schema=pool.name) for part in own.trees)
        network = None if own.network is None else replace(own.network, schema=pool.name)
        return replace(own, trees=parts, aliases=False, network=network)

    def for_op(self, op: str) -> Recipe:
        """The recipe with the features of an operation; recipes are written with those of convolution.

        `default` and `default_code` have no physical time model for other operations.
        """
        features = operation_named(op).for_models
        if features.in_recipes is None:
            return self
        alone = _TREES_ALONE.get(self.name)
        recipe = alone if alone is not None and self is RECIPES.get(self.name) else self
        schemas = {
            part.schema: features.in_recipes.get(part.schema, features.own.name) for part in recipe.trees
        }
        parts = tuple(replace(part, schema=schemas[part.schema]) for part in recipe.trees)
        return replace(recipe, trees=parts, meaning=recipe.meaning.replace("97 published", "72 published"))

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
        """The recipe whose members grow this many trees."""
        parts = (replace(part, settings=replace(part.settings, trees=trees)) for part in self.trees)
        return replace(self, trees=tuple(parts))

    @property
    def picking_weights(self) -> Mapping[str, float]:
        if self.weights:
            return self.weights
        if self.network is not None and not self.trees:
            return {NETWORK: 1.0}
        return {part.target: 1.0 for part in self.trees} if self.trees else {"physical": 1.0}


OWN = "grouped_conv_own_1"
PUBLISHED = "grouped_conv_97"
WITH_CODE = "grouped_conv_own_2"
WITH_LAUNCH = "grouped_conv_own_3"
_CORRECTION = TreeSettings(trees=200)
_LARGER_TREES = TreeSettings(num_leaves=31)
_LAUNCH_ORDER = TreeSettings(trees=1000, num_leaves=31, min_child_samples=20)
_TREES_ALONE = {
    "default": Recipe(
        "default",
        "own features, ln(time), four seeds averaged, rows near the best count more",
        (TreePart("log_time", OWN, ensemble=4, near_best=True),),
    ),
    "default_code": Recipe(
        "default_code",
        "the default, with metrics of the kernels' binaries",
        (TreePart("log_time", WITH_CODE, ensemble=4, near_best=True),),
    ),
}
"""These recipes for operations other than convolution: on GEMMs measured on a CPU they are better than every
recipe with a physical time model (docs/gemm.md)."""


def _trees(target: str, schema: str = OWN, ensemble: int = 1) -> tuple[TreePart, ...]:
    return (TreePart(target, schema, ensemble=ensemble),)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "default",
            "aliases merged; physical time model, corrected by four ensembled tree models",
            (TreePart("correction", OWN, _CORRECTION, 4, near_best=True),),
            {"physical": 0.4, "correction": 0.6},
            aliases=True,
            physical=True,
        ),
        Recipe(
            "published",
            "97 published features, log1p(TFLOPS), published parameters",
            (TreePart("tflops", PUBLISHED, PUBLISHED_SETTINGS),),
        ),
        Recipe("tflops_97", "97 published features, log1p(TFLOPS), small trees", _trees("tflops", PUBLISHED)),
        Recipe("log_time_97", "97 published features, ln(time), small trees", _trees("log_time", PUBLISHED)),
        Recipe(
            "log_efficiency_97", "97 published features, ln(efficiency)", _trees("log_efficiency", PUBLISHED)
        ),
        Recipe("tflops", "own features, log1p(TFLOPS)", _trees("tflops")),
        Recipe("log_time", "own features, ln(time)", _trees("log_time")),
        Recipe("log_efficiency", "own features, ln(efficiency within the problem)", _trees("log_efficiency")),
        Recipe("lambdarank", "own features, LambdaRank", _trees("lambdarank")),
        Recipe(
            "launch",
            "LambdaRank, two seeds, with launch parameters of kernels/gpu and metrics of binaries",
            (TreePart("lambdarank", WITH_LAUNCH, _LAUNCH_ORDER, ensemble=2),),
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
        Recipe("pairwise", "own features, logistic loss over pairs of kernels", _trees("pairwise")),
        Recipe("log_time_x4", "own features, ln(time), four seeds averaged", _trees("log_time", ensemble=4)),
        Recipe(
            "log_time_code",
            "the same, with metrics of the kernels' binaries",
            _trees("log_time", WITH_CODE, ensemble=4),
        ),
        Recipe(
            "default_code",
            "the default, its trees with metrics of the kernels' binaries",
            (TreePart("correction", WITH_CODE, _CORRECTION, 4, near_best=True),),
            {"physical": 0.4, "correction": 0.6},
            aliases=True,
            physical=True,
        ),
        Recipe(
            "log_time_merged",
            "four seeds of ln(time) averaged, aliases merged",
            _trees("log_time", ensemble=4),
            aliases=True,
        ),
        Recipe("physical_all", "physical time model, every name its own kernel", physical=True),
        Recipe("physical", "physical time model alone, aliases merged", aliases=True, physical=True),
        Recipe(
            "physical_and_trees",
            "mean of the physical model and of ln(time) trees, aliases merged",
            _trees("log_time", ensemble=4),
            {"physical": 0.5, "log_time": 0.5},
            aliases=True,
            physical=True,
        ),
    )
}
"""The recipes by name."""


SUITED = (
    "the best known: default on gfx950 and for GEMM on cpu; on sm_90 network for GEMM kernels of "
    "several sources (two_orders for those of one), lambdarank for attention, launch for convolutions; "
    "lambdarank for these on cpu"
)
"""The results of `suited_recipe`, for help texts."""


def suited_recipe(op: str, arch: str, *, has_code: bool, several: bool = False) -> str:
    """The name of the recipe that did best on measurements of such kernels (docs/heuristic.md, docs/gemm.md).

    has_code: whether the records have metrics of the kernels' binaries. several: whether kernels of Triton
    files or libraries are among them. Architectures without measurements
    use the recipe of their kind: gfx950's for AMD GPUs, sm_90's for NVIDIA GPUs.
    """
    if op != "grouped_conv" and not arch.startswith("gfx"):
        gemm = "network" if several else "two_orders"
        on_gpu = gemm if op == "gemm" else "lambdarank"
        return "default" if arch == "cpu" else on_gpu
    if arch.startswith("gfx"):
        return "default"
    return "launch" if has_code and arch != "cpu" else "lambdarank"


def recipe_named(name: str) -> Recipe:
    """Raises ModelError listing the known recipes."""
    try:
        return RECIPES[name]
    except KeyError:
        raise ModelError(f"no recipe {name!r}; known: {', '.join(RECIPES)}") from None
