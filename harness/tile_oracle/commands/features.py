"""`tile-oracle pool list --features`: the feature schemas, and the features of a pair."""

from __future__ import annotations

import argparse
from typing import Any

from tile_oracle.commands.json_output import print_json
from tile_oracle.errors import ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import SCHEMAS, op_of_model, schema_named
from tile_oracle.kernel import kernel_of_kind
from tile_oracle.problem import problem_from_id


def show_features(args: argparse.Namespace) -> int:
    """Prints the table. Raises ModelError, ProblemError, KernelError, RuleError."""
    if not args.features:
        if args.json:
            of_all = SCHEMAS.values()
            print_json(
                [{"schema": one.name, "operation": one.op, "columns": len(one.names)} for one in of_all]
            )
            return 0
        for schema in SCHEMAS.values():
            print(f"{schema.name:<22}{schema.op:<16}{len(schema.names):>4} columns")
        return 0
    schema = schema_named(args.features)
    if (args.problem is None) != (args.name is None):
        raise ModelError("features of a pair need both --problem and a kernel's name")
    row: Any = None
    if args.problem is not None:
        problem = problem_from_id(args.problem)
        kernel = kernel_of_kind(problem.kind, args.name)
        if op_of_model(schema.op) != problem.op or not kernel.matches(problem):
            raise ModelError(f"{kernel.name} and {problem.id} do not go together under {schema.name}")
        row = schema.compute(pair_columns([problem], [kernel]), hardware_features(args.arch or "gfx950"))[0]
    if args.json:
        print_json(
            [
                {"name": one.name, "meaning": one.meaning, **({} if row is None else {"value": row[place]})}
                for place, one in enumerate(schema.features)
            ]
        )
        return 0
    values = [""] * len(schema.names) if row is None else [f"{value:.6g}" for value in row]
    for index, (feature, value) in enumerate(zip(schema.features, values, strict=True)):
        print(f"{index:>3}  {feature.name:<34}{value:>14}  {feature.meaning}")
    return 0
