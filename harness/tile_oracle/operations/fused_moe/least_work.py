"""The least work of a product of experts (see `tile_oracle.operation.Operation.least_work`)."""

from __future__ import annotations

from tile_oracle.operations.fused_moe.problem import FusedMoeProblem
from tile_oracle.operations.fused_moe.routing import active_experts
from tile_oracle.operations.grouped_conv.least_work import FEWER_PRODUCTS_OF_MATRICES


def least_work(problem: FusedMoeProblem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of A and of the weights of
    experts that have tokens."""
    rows = problem.tokens * problem.rows_of_a + active_experts(problem) * problem.N
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES, 2 * rows * problem.K
