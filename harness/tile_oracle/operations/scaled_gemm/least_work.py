"""The least work of a scaled product (see `tile_oracle.operation.Operation.least_work`)."""

from __future__ import annotations

from tile_oracle.operations.grouped_conv.least_work import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.operations.scaled_gemm.problem import ScaledGemmProblem


def least_work(problem: ScaledGemmProblem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of A and B."""
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES, (problem.M + problem.N) * problem.K
