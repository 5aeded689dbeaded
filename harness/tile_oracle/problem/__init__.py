"""Problems: one validated, frozen operation instance each, with one class per operation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
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
from tile_oracle.problem.fields import FlatProblem

__all__ = [
    "Kind", "Problem", "gemm_shape", "kind_text", "problem_from_id", "problem_from_row",
]  # fmt: skip


Problem = FlatProblem
"""A problem of any operation: a frozen dataclass, whose fields are columns of records."""


def gemm_shape(problem: Problem) -> tuple[int, int, int]:
    """M, N and K of the (implicit) GEMM. Raises ProblemError if the results are not sums of products."""
    shape: tuple[int, int, int] | None = getattr(problem, "gemm_shape", None)
    if shape is None:
        raise ProblemError(f"{problem.id} is not a sum of products: {problem.op} has no GEMM")
    return shape


@lru_cache(maxsize=8192)
def problem_from_id(text: str) -> Problem:
    """Returns the problem of an id, of any operation. Raises ProblemError, which names the id that a text
    with spaces or commas may mean."""
    joined = "-".join(text.replace(",", " ").split())
    problem = operation_of_prefix(joined).problem.from_id(joined)
    if joined != text:
        raise ProblemError(f"{text!r} is not a problem id: did you mean {problem.id!r}?")
    return problem


def problem_from_row(row: Mapping[str, Any]) -> Problem:
    """Returns the problem of a table's row. Its column `op` names the operation; without it the columns
    decide.

    Raises ProblemError.
    """
    op = row.get("op")
    operation = operation_of_columns(row) if op is None else find_operation(op)
    if operation is None:
        raise ProblemError(f"operation {op!r} is not one of {', '.join(operation_names())}")
    return operation.problem.from_row(row)


def kind_text(kind: Kind) -> str:
    """Returns a kind in words: forward bf16 2D, or gemm bf16 rcr."""
    return operation_named(kind.op).kind_text(kind)
