"""Problems: one validated, frozen operation instance each, with one class per operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from functools import lru_cache
from typing import Any, ClassVar, Protocol, Self, cast

from tile_oracle.errors import ProblemError
from tile_oracle.operation import (
    Kind,
    find_operation,
    operation_named,
    operation_names,
    operation_of_columns,
    operation_of_prefix,
)

__all__ = [
    "Kind",
    "Problem",
    "gemm_shape",
    "kernel_prefix",
    "kind_text",
    "problem_from_id",
    "problem_from_row",
]


class Problem(Protocol):
    """A problem of any operation: a frozen dataclass, whose fields are columns of records.

    op: its operation's name.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    op: ClassVar[str]

    @property
    def dtype(self) -> str:
        """The data type of the operands."""

    @property
    def result_dtype(self) -> str:
        """The data type of the result."""

    @property
    def operand_dtypes(self) -> tuple[str, str]:
        """The data types of the first two operands."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The fields that identify the problem. Join by this, never by an index."""

    @property
    def family(self) -> tuple[Any, ...]:
        """The key without the fields that vary within a family: one layer at all batch and image sizes."""

    @property
    def kind(self) -> Kind:
        """The fields that problem and kernel must share."""

    @property
    def id(self) -> str:
        """Readable and reversible (`from_id`)."""

    @property
    def title(self) -> str:
        """The size in words, for people; several problems may share it."""

    @classmethod
    def from_id(cls, text: str) -> Self:
        """Returns the inverse of `id`. Raises ProblemError."""

    def as_row(self) -> dict[str, Any]:
        """Returns all fields as a flat mapping."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Returns the inverse of `as_row`; other columns are ignored. Raises ProblemError."""

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the operands and, last, of the result in memory order, outermost extent first."""

    @property
    def flops(self) -> int:
        """Floating-point operations."""

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result."""

    def tflops(self, latency_ms: float) -> float:
        """TFLOPS at a latency in milliseconds."""


class _SumOfProducts(Problem, Protocol):
    @property
    def gemm_shape(self) -> tuple[int, int, int]: ...


def gemm_shape(problem: Problem) -> tuple[int, int, int]:
    """M, N and K of the (implicit) GEMM. Raises ProblemError if the results are not sums of products."""
    if not hasattr(problem, "gemm_shape"):
        raise ProblemError(f"{problem.id} is not a sum of products: {problem.op} has no GEMM")
    return cast(_SumOfProducts, problem).gemm_shape


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


def kernel_prefix(kind: Kind) -> str:
    """Returns the part of a full kernel name before the short name."""
    return operation_named(kind.op).kernel_prefix(kind)


def kind_text(kind: Kind) -> str:
    """Returns a kind in words: forward bf16 2D, or gemm bf16 rcr."""
    return operation_named(kind.op).kind_text(kind)
