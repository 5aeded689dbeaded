"""What to train: which members, on which features, weighed how. Named recipes are the ablation's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.errors import ModelError
from harness.heuristic.targets import target_named
from harness.heuristic.trees import PUBLISHED_SETTINGS, TreeSettings


@dataclass(frozen=True)
class TreePart:
    """A tree member: its target, its features, how the trees grow, and how many seeds are averaged."""

    target: str
    schema: str
    settings: TreeSettings = TreeSettings()
    ensemble: int = 1


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training but the data and the seed.

    `weights`: how much each member counts for the pick; the default is all of them equally.
    """

    name: str
    meaning: str
    trees: tuple[TreePart, ...]
    weights: Mapping[str, float] = field(default_factory=dict)

    def with_targets(self, targets: Sequence[str]) -> Recipe:
        """The recipe that also trains these targets, grown like its first member; picks stay as they are.

        Raises ModelError for an unknown target.
        """
        have = {part.target for part in self.trees}
        more = tuple(replace(self.trees[0], target=target_named(t).name) for t in dict.fromkeys(targets) if t not in have)
        return replace(self, trees=(*self.trees, *more), weights=dict(self.picking_weights))

    @property
    def picking_weights(self) -> Mapping[str, float]:
        return self.weights or {part.target: 1.0 for part in self.trees}


OWN = "grouped_conv_own_1"
_SMALL = TreeSettings(trees=300)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "published",
            "97 features, log1p(TFLOPS), published parameters",
            (TreePart("tflops", "grouped_conv_97", PUBLISHED_SETTINGS),),
        ),
        Recipe("default", "own features, ln(time)", (TreePart("log_time", OWN),)),
        Recipe("log_time", "own features, ln(time)", (TreePart("log_time", OWN),)),
        Recipe("quick", "own features, ln(time), few trees: for a run's own records", (TreePart("log_time", OWN, _SMALL),)),
    )
}
"""The recipes by name."""


def recipe_named(name: str) -> Recipe:
    """Raises ModelError listing the known recipes."""
    try:
        return RECIPES[name]
    except KeyError:
        raise ModelError(f"no recipe {name!r}; known: {', '.join(RECIPES)}") from None
