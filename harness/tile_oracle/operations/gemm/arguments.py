"""Names and axes of a GEMM's arrays."""

from __future__ import annotations

from tile_oracle.operation.descriptor import Argument
from tile_oracle.operations.gemm.problem import GemmProblem

_AXES = {"a": ("M K", "K M"), "b": ("K N", "N K"), "c": ("M N", "N M")}
"""Axes of the row-major (r) and column-major (c) array."""


def arguments(problem: GemmProblem) -> tuple[Argument, Argument, Argument]:
    """Returns both operands and the result."""
    a, b, c = (
        Argument(name, by_row if order == "r" else by_column)
        for (name, (by_row, by_column)), order in zip(_AXES.items(), problem.layout, strict=True)
    )
    return a, b, c
