"""The feature schemas of an operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tile_oracle.features.feature_table import FeatureSchema


@dataclass(frozen=True)
class OperationFeatures:
    """The feature schemas of one operation.

    own: the default schema; it has the columns `flops` and `bytes_total` of a problem. others: further
    schemas. fallback: schemas tried, in order, for a model that names none. in_recipes: role
    in a recipe (training.recipe) -> name of the schema, if it is not `own`. time_terms: terms
    of the physical time model; None if there is no such model. kernel_distance: field -> distance between
    kernels that differ in it, on a scale where a doubled tile is 2. pool: the schema that reads a kernel's
    configuration from its name, for pools with kernels of Triton files and libraries; None: models cannot
    rank these.
    """

    own: FeatureSchema
    others: tuple[FeatureSchema, ...] = ()
    fallback: tuple[FeatureSchema, ...] = ()
    in_recipes: Mapping[str, str] = field(default_factory=dict)
    time_terms: FeatureSchema | None = None
    kernel_distance: Mapping[str, float] = field(default_factory=dict)
    pool: FeatureSchema | None = None

    @property
    def all(self) -> tuple[FeatureSchema, ...]:
        """Every schema."""
        return (self.own, *self.others, *(() if self.pool is None else (self.pool,)))
