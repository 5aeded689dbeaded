"""Problems: one operation instance each, frozen and validated; one class an operation.

What all have: `op`, `dtype`, `key`, `family`, `kind`, `id` and `from_id`, `as_row` and `from_row`,
`operand_shapes`, `gemm_shape`, `flops`, `bytes`, `tflops`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tile_oracle.errors import ProblemError
from tile_oracle.operation import (
    Kind,
    find_operation,
    operation_named,
    operation_names,
    operation_of_columns,
    operation_of_prefix,
)
from tile_oracle.problem.gemm import GEMM_DTYPES, GEMM_LAYOUTS, GEMM_PROBLEM_FIELDS, GemmProblem
from tile_oracle.problem.grouped_conv import (
    DIRECTIONS,
    DTYPE_BYTES,
    DTYPES,
    PROBLEM_FIELDS,
    GroupedConvProblem,
)

__all__ = [
    "DIRECTIONS",
    "DTYPES",
    "DTYPE_BYTES",
    "GEMM_DTYPES",
    "GEMM_LAYOUTS",
    "GEMM_PROBLEM_FIELDS",
    "PROBLEM_FIELDS",
    "GemmProblem",
    "GroupedConvProblem",
    "Kind",
    "Problem",
    "kernel_prefix",
    "kind_text",
    "problem_from_id",
    "problem_from_row",
]

Problem = GroupedConvProblem | GemmProblem
"""A problem of any operation."""


def problem_from_id(text: str) -> Problem:
    """The problem of an id, whatever its operation. Raises ProblemError."""
    return operation_of_prefix(text).problem.from_id(text)


def problem_from_row(row: Mapping[str, Any]) -> Problem:
    """The problem of a table's row: of the operation in its column `op` or, without one, of the operation
    that its columns are those of. Raises ProblemError."""
    op = row.get("op")
    operation = operation_of_columns(row) if op is None else find_operation(op)
    if operation is None:
        raise ProblemError(f"operation {op!r} is not one of {', '.join(operation_names())}")
    return operation.problem.from_row(row)


def kernel_prefix(kind: Kind) -> str:
    """How the full names of a kind's kernels begin: what stands before a short name."""
    return operation_named(kind.op).kernel_prefix(kind)


def kind_text(kind: Kind) -> str:
    """A kind in words: forward bf16 2D, or gemm bf16 rcr."""
    return operation_named(kind.op).kind_text(kind)
