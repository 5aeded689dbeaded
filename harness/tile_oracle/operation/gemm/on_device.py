"""GEMM in a worker process (see `tile_oracle.operation.on_device`)."""

from __future__ import annotations

from collections.abc import Sequence

from tile_oracle.device.cpu_data import ProblemData
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.roofline import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.number_formats import STORAGE
from tile_oracle.operation.grouped_conv import on_device as convolution
from tile_oracle.problem.gemm import GemmProblem
from tile_oracle.problem.pointwise import operands_swapped, pointwise_conv


def cpu_data(problem: GemmProblem, seed: int) -> ProblemData:
    """Exact integers, as for every sum of products."""
    return ProblemData(problem, seed)


def cpu_arguments(
    problem: GemmProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
) -> convolution.ConvArgs:
    """On the cpu a product is a 1x1 convolution."""
    if operands_swapped(problem):
        operands = operands[::-1]
    return convolution.cpu_arguments(pointwise_conv(problem), operands, out)


def least_flops(problem: GemmProblem) -> float:
    """Operations that every algorithm known for exact results needs."""
    return problem.flops / FEWER_PRODUCTS_OF_MATRICES


def bytes_read(problem: GemmProblem) -> int:
    """Bytes of A and B."""
    return STORAGE[problem.dtype].itemsize * (problem.M + problem.N) * problem.K
