"""The least work of a fused product (see `tile_oracle.operation.Operation.least_work`)."""

from __future__ import annotations

import math

from tile_oracle.operations.fused_gemm.problem import FusedGemmProblem
from tile_oracle.operations.grouped_conv.least_work import FEWER_PRODUCTS_OF_MATRICES


def least_work(problem: FusedGemmProblem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of all operands."""
    values = sum(map(math.prod, problem.operand_shapes[:-1]))
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES, 2 * values
