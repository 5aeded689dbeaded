"""What models read of an operation's problems and kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tile_oracle.features.feature_table import FeatureSchema


@dataclass(frozen=True)
class OperationFeatures:
    """The schemas of one operation.

    own: what its models read by default; it has the columns `flops` and `bytes_total` of a problem. others:
    further schemas. fallback: which schemas serve a model that names none, the first that fits. in_recipes:
    schema in a recipe -> schema of this operation, `own` where it is left out; None: as the recipe says.
    time_terms: what a kernel's time is made of, for a physical model; None: there is no such model.
    kernel_distance: field -> how far apart kernels are that differ in it, where a doubled tile is 2.
    """

    own: FeatureSchema
    others: tuple[FeatureSchema, ...] = ()
    fallback: tuple[FeatureSchema, ...] = ()
    in_recipes: Mapping[str, str] | None = field(default_factory=dict)
    time_terms: FeatureSchema | None = None
    kernel_distance: Mapping[str, float] = field(default_factory=dict)

    @property
    def all(self) -> tuple[FeatureSchema, ...]:
        """Every schema."""
        return (self.own, *self.others)
