"""Descriptors of operations on the rows of a matrix, from what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_oracle.operation.descriptor import Operation
from tile_oracle.operation.part import deferred, part
from tile_oracle.operations.rowwise.kernel import RowKernel
from tile_oracle.operations.rowwise.problem import ROW_DTYPES, RowProblem
from tile_oracle.operations.rowwise.slices import ROW_SLICES

if TYPE_CHECKING:
    from tile_oracle.triton.views import ProblemView


def row_operation(
    problem: type[RowProblem],
    kernel: type[RowKernel],
    *,
    plural: str,
    folder: Path,
    package: str | None,
    cpu_source: Callable[[Any], str],
    triton_view: Callable[[], type[ProblemView]] | None = None,
) -> Operation:
    """Returns the descriptor of an operation.

    problem: its type, whose second and third fields are the rows and the columns. folder, package: those of
    the operation, with rules/ and on_device.py, whose WORKER is imported by workers alone.
    """
    op, (_, rows, columns) = problem.op, (field.name for field in fields(problem))

    worker = part(".on_device:WORKER", package)
    row_features = deferred(".features:row_features", __package__)
    return Operation(
        name=op,
        plural=plural,
        problem=problem,
        kernel=kernel,
        parse_kernel=kernel.parse,
        kind_fields={"dtype": ROW_DTYPES},
        kind_words="operation and dtype",
        kind_format=f"{op} {{dtype}}",
        kernel_prefix_format=f"{op}_{{dtype}}_",
        id_prefixes=(f"{op}-",),
        id_pattern=f"{op}-[a-z0-9]+-r[0-9]+-c[0-9]+",
        short_names="lanes[0-9]+",
        marks=(columns,),
        required=(rows, columns),
        defaults={"dtype": "bf16"},
        model_type=op,
        family_varies=(rows,),
        fold_fields=(columns,),
        slices=ROW_SLICES,
        rules_key=op,
        read_rules=partial(deferred("tile_oracle.pool.sized_block:read_block"), kernel),
        rules_folder=folder / "rules",
        refusals=deferred("tile_oracle.pool.sized_block:refusals"),
        cpu_source=cpu_source,
        on_device=worker,
        least_work=deferred(".least_work:least_work", __package__),
        on_gpu=worker,
        triton_view=triton_view,
        features=lambda: row_features(problem, rows, columns),
    )
