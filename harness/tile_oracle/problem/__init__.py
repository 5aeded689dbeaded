"""Problems: one operation instance each, frozen and validated; one class an operation.

What all have: `op`, `dtype`, `key`, `family`, `kind`, `id` and `from_id`, `as_row` and `from_row`,
`operand_shapes`, `gemm_shape`, `flops`, `bytes`, `tflops`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tile_oracle.errors import ProblemError
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
    "OPS",
    "PROBLEM_FIELDS",
    "PROBLEM_TYPES",
    "SHARED",
    "GemmProblem",
    "GroupedConvProblem",
    "Kind",
    "Problem",
    "kind_text",
    "problem_from_id",
    "problem_from_row",
]

Problem = GroupedConvProblem | GemmProblem
"""A problem of any operation."""

Kind = tuple[str, str, int] | tuple[str, str, str]
"""What problem and kernel must share: (direction, dtype, rank), or ("gemm", dtype, layout)."""

PROBLEM_TYPES: Mapping[str, type[GroupedConvProblem] | type[GemmProblem]] = MappingProxyType(
    {GroupedConvProblem.op: GroupedConvProblem, GemmProblem.op: GemmProblem}
)
"""Operation -> class of its problems."""

SHARED: Mapping[str, str] = MappingProxyType(
    {GroupedConvProblem.op: "direction, dtype and rank", GemmProblem.op: "operation, dtype and layout"}
)
"""Operation -> what of a kernel must be its problem's, in words."""

OPS: tuple[str, ...] = tuple(PROBLEM_TYPES)


def problem_from_id(text: str) -> Problem:
    """The problem of an id, whatever its operation. Raises ProblemError."""
    if text.startswith(GemmProblem.op + "-"):
        return GemmProblem.from_id(text)
    return GroupedConvProblem.from_id(text)


def problem_from_row(row: Mapping[str, Any]) -> Problem:
    """The problem of a table's row: of the operation in its column `op` or, without one, of the operation
    that its columns are those of. Raises ProblemError."""
    op = row.get("op")
    if op is None:
        op = GemmProblem.op if "layout" in row and "direction" not in row else GroupedConvProblem.op
    if op not in PROBLEM_TYPES:
        raise ProblemError(f"operation {op!r} is not one of {', '.join(OPS)}")
    return PROBLEM_TYPES[op].from_row(row)


def kind_text(kind: Kind) -> str:
    """A kind in words: forward bf16 2D, or gemm bf16 rcr."""
    first, dtype, last = kind
    return f"{first} {dtype} {last}D" if isinstance(last, int) else f"{first} {dtype} {last}"
