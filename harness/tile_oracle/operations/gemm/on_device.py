"""GEMM in a worker process (see `tile_oracle.operation.on_device`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tile_oracle.device.check_data import Axis, Columns
from tile_oracle.device.cpu_data import ProblemData
from tile_oracle.device.factors import Axes, FactorAxes
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.reference import Integers
from tile_oracle.operations.gemm.pointwise import operands_swapped, pointwise_conv
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv import on_device as convolution


def cpu_data(problem: GemmProblem, seed: int) -> ProblemData:
    """Integer data, as for every sum of products."""
    return ProblemData(problem, seed)


def cpu_arguments(
    problem: GemmProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
) -> convolution.ConvArgs:
    """Returns the arguments of the 1x1 convolution that computes the GEMM on cpu."""
    if operands_swapped(problem):
        operands = operands[::-1]
    return convolution.cpu_arguments(pointwise_conv(problem), operands, out)


def fold_axes(problem: GemmProblem) -> tuple[Axis, Axis]:
    """Returns the axis of each operand along which the second half of the depth repeats the first."""
    first = Axis(1 if problem.layout[0] == "r" else problem.M, problem.K)
    return first, Axis(problem.N if problem.layout[1] == "r" else 1, problem.K)


def columns_of_second(problem: GemmProblem) -> Columns:
    """Returns the elements of B that determine a column of the result."""
    return Columns(problem.N if problem.layout[1] == "r" else 1, problem.K)


def factor_axes(problem: GemmProblem) -> FactorAxes:
    """Rows of A and C, columns of B and C, and the depth."""
    m, n, k = problem.M, problem.N, problem.K
    along, across = (0, 0, 1, 0), (0, 0, 0, 1)
    a = Axes((1, 1, m, k), along, across) if problem.layout[0] == "r" else Axes((1, 1, k, m), across, along)
    b = Axes((1, 1, k, n), across, along) if problem.layout[1] == "r" else Axes((1, 1, n, k), along, across)
    return FactorAxes(a, b, Axes((1, 1, m, n), along, across))


def without_padding(problem: GemmProblem) -> list[npt.NDArray[np.int64]]:
    """Returns all positions: a product has no padding."""
    return [np.arange(extent) for extent in problem.operand_shapes[1]]


def elements_together(problem: GemmProblem) -> int:
    """Returns one: no zeros are added to a product."""
    return 1


def exact_output(problem: GemmProblem, first: Integers, second: Integers) -> npt.NDArray[np.float32]:
    """Returns the whole output. It is exact because all sums stay below 2^24."""
    a, b = _matrices(problem, first, second)
    return np.asarray(a.astype(np.float32) @ b.astype(np.float32))


def _matrices(problem: GemmProblem, first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """Returns a as (M, K) and B as (K, N), whatever their order in memory."""
    a = first if problem.layout[0] == "r" else first.T
    b = second if problem.layout[1] == "r" else second.T
    return a, b
