"""The least work of attention (see `tile_oracle.operation.Operation.least_work`)."""

from __future__ import annotations

import math

from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.operations.grouped_conv.least_work import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.problem.number_formats import STORAGE


def least_work(problem: AttentionProblem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of Q, K and V: each key is
    visible to the last query."""
    elements = sum(map(math.prod, problem.operand_shapes[:-1]))
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES, STORAGE[problem.dtype].itemsize * elements
