"""The least work of a GEMM (see `tile_oracle.operation.Operation.least_work`)."""

from __future__ import annotations

from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.least_work import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.problem.number_formats import STORAGE


def least_work(problem: GemmProblem) -> tuple[float, int]:
    """Returns the operations of one level of Strassen's algorithm, and the bytes of A and B."""
    size = STORAGE[problem.dtype].itemsize
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES, size * (problem.M + problem.N) * problem.K
