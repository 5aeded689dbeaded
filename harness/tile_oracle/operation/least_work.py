"""The least work of matrix products (see `Operation.least_work`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tile_oracle.problem import Problem

FEWER_PRODUCTS_OF_MATRICES = 8 / 7
"""Reduction of multiplications by one level of Strassen's algorithm."""


def least_work_of_products(problem: Problem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of all operands."""
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES, problem.operand_bytes
