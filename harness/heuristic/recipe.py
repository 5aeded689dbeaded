"""What to train: which members, on which features, weighed how. Named recipes are the ablation's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.errors import ModelError
from harness.heuristic.targets import target_named
from harness.heuristic.trees import PUBLISHED_SETTINGS, TreeSettings


@dataclass(frozen=True)
class TreePart:
    """A tree member: its target, its features, how the trees grow, how many seeds are averaged, and
    whether rows near the best of their problem count more.

    strongest: of the schema's features only so many are read, those with the most gain in a first
    training on the same rows; 0 means all of them.
    """

    target: str
    schema: str
    settings: TreeSettings = field(default_factory=TreeSettings)
    ensemble: int = 1
    near_best: bool = False
    strongest: int = 0


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training but the data and the seed.

    `aliases`: names that are one kernel are merged first. `physical`: a physical time model is fitted
    (a part with the target `correction` needs it). `weights`: how much each member counts for the pick;
    the default is all tree members equally.
    """

    name: str
    meaning: str
    trees: tuple[TreePart, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    aliases: bool = False
    physical: bool = False

    def with_targets(self, targets: Sequence[str]) -> Recipe:
        """The recipe that also trains these targets, like its first member; picks stay as they are.

        Raises ModelError for an unknown target.
        """
        have = {part.target for part in self.trees}
        wanted = [target_named(name).name for name in dict.fromkeys(targets) if name not in have]
        if "correction" in wanted:
            raise ModelError("the target correction needs a physical model: train the recipe `default`")
        like = self.trees[0] if self.trees else TreePart("log_time", OWN)
        more = tuple(replace(like, target=name) for name in wanted)
        return replace(self, trees=(*self.trees, *more), weights=dict(self.picking_weights))

    def for_op(self, op: str) -> Recipe:
        """The recipe as it is for an operation: on the features of that operation.

        Aliases and the physical time model are made for convolutions: a recipe with them becomes, for
        GEMM, the ln(time) trees that it stands beside. Raises ModelError where nothing is left of it.
        """
        if op == "grouped_conv":
            return self
        if self.physical and not self.trees:
            raise ModelError(
                f"recipe {self.name}: the physical time model is for convolutions; for {op} train log_time"
            )
        kept = tuple(part for part in self.trees if part.target != "correction")
        parts = kept or (TreePart("log_time", OWN, ensemble=4, near_best=True),)
        renamed = tuple(replace(part, schema=_SCHEMAS_OF_GEMM[part.schema]) for part in parts)
        changed = self.physical or self.aliases
        return replace(
            self,
            trees=renamed,
            weights={} if changed else self.weights,
            aliases=False,
            physical=False,
            meaning="own features, ln(time), seeds averaged" if changed else self.meaning,
        )

    def with_trees(self, trees: int) -> Recipe:
        """The recipe whose members grow this many trees."""
        parts = (replace(part, settings=replace(part.settings, trees=trees)) for part in self.trees)
        return replace(self, trees=tuple(parts))

    @property
    def picking_weights(self) -> Mapping[str, float]:
        if self.weights:
            return self.weights
        return {part.target: 1.0 for part in self.trees} if self.trees else {"physical": 1.0}


OWN = "grouped_conv_own_1"
PUBLISHED = "grouped_conv_97"
_SCHEMAS_OF_GEMM = {OWN: "gemm_own_1", PUBLISHED: "gemm_universal_72"}
_CORRECTION = TreeSettings(trees=200)


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
        Recipe("pairwise", "own features, logistic loss over pairs of kernels", _trees("pairwise")),
        Recipe("log_time_x4", "own features, ln(time), four seeds averaged", _trees("log_time", ensemble=4)),
        Recipe(
            "log_time_merged",
            "the same, and aliases merged",
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


def recipe_named(name: str) -> Recipe:
    """Raises ModelError listing the known recipes."""
    try:
        return RECIPES[name]
    except KeyError:
        raise ModelError(f"no recipe {name!r}; known: {', '.join(RECIPES)}") from None
