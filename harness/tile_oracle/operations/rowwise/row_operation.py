"""Descriptors of operations on the rows of a matrix, from what differs between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tile_oracle.kernel.sized import sized_operation
from tile_oracle.operation.descriptor import Belongs, Operation
from tile_oracle.operation.part import deferred
from tile_oracle.operations.rowwise.problem import ROW_DTYPES, RowKernel, RowProblem

if TYPE_CHECKING:
    from tile_oracle.triton.views import ProblemView

_SLICES: Mapping[str, Belongs] = {
    "few rows": lambda p: p.height < 128,
    "short rows": lambda p: p.width <= 1024,
    "long rows": lambda p: p.width >= 32768,
    "columns no multiple of 16": lambda p: bool(p.width % 16),
}


def row_operation(
    problem: type[RowProblem],
    kernel: type[RowKernel],
    *,
    plural: str,
    package: str | None,
    cpu_source: Callable[[Any], str],
    triton_view: Callable[[], type[ProblemView]] | None = None,
) -> Operation:
    """Returns the descriptor of an operation.

    problem: its type, whose second and third fields are the rows and the columns. package: the operation's,
    with rules/ and on_device.py, whose WORKER is imported by workers alone.
    """
    _, rows, columns = problem.field_names()
    row_features = deferred(".features:row_features", __package__)
    return sized_operation(
        problem,
        kernel,
        package,
        plural=plural,
        kind_fields={"dtype": ROW_DTYPES},
        marks=(columns,),
        defaults={"dtype": "bf16"},
        family_varies=(rows,),
        fold_fields=(columns,),
        slices=_SLICES,
        cpu_source=cpu_source,
        least_work=lambda problem: (float(problem.height * problem.width), problem.operand_bytes),
        triton_view=triton_view,
        features=lambda: row_features(problem, rows, columns),
    )
