"""The feature schemas, by name: `schema_named`, `schema_with`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array, FeatureSchema, OperationFeatures
from tile_oracle.features.schemas.code_columns import CODE_FEATURES, CODE_INPUTS
from tile_oracle.features.schemas.gemm_own import GEMM_OWN
from tile_oracle.features.schemas.gemm_pool import GEMM_POOL_2
from tile_oracle.features.schemas.gemm_published import GEMM_72, GEMM_78
from tile_oracle.features.schemas.grouped_conv_dsl import GROUPED_CONV_113
from tile_oracle.features.schemas.grouped_conv_own import (
    GROUPED_CONV_OWN,
    GROUPED_CONV_POOL,
    GROUPED_CONV_TERMS,
    LAUNCH_FEATURES,
)
from tile_oracle.features.schemas.grouped_conv_published import GROUPED_CONV_97
from tile_oracle.operation import operation_named, operation_of_columns, operations
from tile_oracle.terminal.did_you_mean import did_you_mean

GROUPED_CONV_OWN_3 = GROUPED_CONV_OWN.extended(
    "grouped_conv_own_3", (*CODE_FEATURES, *LAUNCH_FEATURES), CODE_INPUTS
)

GROUPED_CONV_FEATURES = OperationFeatures(
    GROUPED_CONV_OWN,
    (GROUPED_CONV_OWN_3, GROUPED_CONV_97, GROUPED_CONV_113),
    fallback=(GROUPED_CONV_97, GROUPED_CONV_113, GROUPED_CONV_OWN, GROUPED_CONV_OWN_3),
    in_recipes={"published": "grouped_conv_97", "launch": "grouped_conv_own_3"},
    time_terms=GROUPED_CONV_TERMS,
    kernel_distance={"pipeline": 8.0, "scheduler": 2.0, "double_smem_buffer": 1.0, "split_image": 1.0},
    pool=GROUPED_CONV_POOL,
)
GEMM_FEATURES = OperationFeatures(
    GEMM_OWN,
    (GEMM_72, GEMM_78),
    fallback=(GEMM_72, GEMM_78, GEMM_OWN),
    in_recipes={"published": "gemm_universal_72"},
    pool=GEMM_POOL_2,
)

SCHEMAS: dict[str, FeatureSchema] = {
    schema.name: schema for one in (GROUPED_CONV_FEATURES, GEMM_FEATURES) for schema in one.all
}
"""Name -> schema, for the package's own operations."""


def schema_named(name: str) -> FeatureSchema:
    """Returns the schema of that name. Raises ModelError, which lists the known names, for an unknown one."""
    if name in SCHEMAS:
        return SCHEMAS[name]
    known = {schema.name: schema for one in operations() if one.features for schema in one.for_models.all}
    if name not in known:
        hint = did_you_mean(name, known, f"known: {', '.join(known)}")
        raise ModelError(f"no feature schema {name[:200]!r}; {hint}")
    return known[name]


def schema_with(op: str, feature_names: Sequence[str]) -> FeatureSchema:
    """Returns a schema of the operation that has all these features, for a model that names no schema.

    Raises ModelError, which lists the missing features, if no schema of the operation has all of them.
    """
    missing: list[str] = []
    known = next((one.for_models for one in operations() if one.model_type == op and one.features), None)
    for schema in () if known is None else known.fallback or known.all:
        lacking = [name for name in feature_names if name not in schema.names]
        if not lacking:
            return schema
        missing = lacking if not missing or len(lacking) < len(missing) else missing
    if not missing:
        raise ModelError(f"no feature schema for operation {op!r}")
    raise ModelError(
        f"the model needs features that no {op} schema has: {', '.join(missing)}; "
        "it was trained with another version of the features"
    )


def schemas_of_model(op_type: str) -> tuple[FeatureSchema, ...]:
    """Returns every schema of the operation of a model folder's op_type. Raises ModelError."""
    return operation_named(op_of_model(op_type)).for_models.all


_UNREAD = {
    "fmha_fwd": "its 68 columns have no names in it, and what they mean stands in fmha_ml_heuristic.hpp "
    "alone: `tile-oracle model export MODEL --check --ck-tile DIR` compares it with that header",
    "fmha_bwd": "the names and codes of its columns are not published",
    "miopen_solver": "it chooses among MIOpen's solvers, and there are no kernels of them here",
}
"""Operation of public model folders -> why they cannot be used."""


def op_of_model(op_type: str) -> str:
    """Returns the operation of a model folder's op_type. Raises ModelError."""
    known = {one.model_type: one.name for one in operations()}
    if op_type in _UNREAD:
        raise ModelError(f"a model of operation {op_type!r} cannot be used: {_UNREAD[op_type]}")
    if op_type not in known:
        raise ModelError(f"models of operation {op_type!r} are not known; known: {', '.join(known)}")
    return known[op_type]


@dataclass(frozen=True)
class Work:
    """Cost of each row's problem. Arrays of shape (rows,)."""

    flops: Array
    bytes: Array


def work_schema(op: str) -> tuple[FeatureSchema, tuple[str, str]]:
    """Returns a schema with a problem's floating-point operations and tensor bytes, and the names of both
    columns."""
    return operation_named(op).for_models.own, ("flops", "bytes_total")


def work_of(rows: Mapping[str, Any] | pd.DataFrame) -> Work:
    """Floating-point operations and tensor bytes of each row's problem, counted as by the problem itself."""
    schema, names = work_schema(operation_of_columns(rows.keys()).name)
    values = schema.compute(rows, {}, names)
    return Work(values[:, 0], values[:, 1])


def flops_of(rows: Mapping[str, Any] | pd.DataFrame) -> Array:
    """Floating-point operations of each row's problem, (rows,)."""
    return work_of(rows).flops
