"""The least work of operations on rows (see `tile_oracle.operation.Operation.least_work`)."""

from __future__ import annotations

from tile_oracle.operations.rowwise.problem import RowProblem
from tile_oracle.problem.number_formats import STORAGE


def least_work(problem: RowProblem) -> tuple[float, int]:
    """Returns one operation an element, and the bytes of matrix and weights."""
    elements = problem.height * problem.width
    return float(elements), problem.bytes - STORAGE[problem.dtype].itemsize * elements
