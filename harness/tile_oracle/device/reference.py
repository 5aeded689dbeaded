"""Inputs and their exact expected results.

Inputs are integers so small that every partial sum stays below 2^24. fp32 accumulation is then exact in any
order, and the only rounding is the last one, to the output's dtype. The expected output is known bit for bit
and a check needs no tolerance.

For fp32 problems the integers of one operand are as large as possible: small ones would not reveal a kernel
that multiplies with reduced precision.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.factors import Exponents, factor_axes
from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem, gemm_shape
from tile_oracle.problem.number_formats import Array, encode

Integers = npt.NDArray[np.integer[Any]]

_FULL_CHECK_FLOPS = 3e9
_FULL_CHECK_VALUES = 1 << 26
_SPOT_POINTS = 2048
_SPOT_PRODUCTS = 1 << 27


@dataclass(frozen=True)
class Expectation:
    """Exact output values, encoded. points: their flat indices in the output, or None for all values."""

    values: Array
    points: npt.NDArray[np.int64] | None

    @property
    def kind(self) -> str:
        return "full" if self.points is None else "spot"

    @property
    def count(self) -> int:
        return int(self.values.size)


def whole_is_quick(problem: Problem) -> bool:
    """Returns whether the whole output can be computed quickly on the CPU."""
    values = math.prod(problem.operand_shapes[2])
    return problem.flops <= _FULL_CHECK_FLOPS and values <= _FULL_CHECK_VALUES


def expectation(
    problem: Problem,
    first: Integers,
    second: Integers,
    seed: int,
    scale: float = 1.0,
    whole: bool | None = None,
    powers: Exponents | None = None,
) -> Expectation:
    """Returns the expected result: every output value, or those at corners, edges and random places.

    scale: factor from integers to results, a power of two. whole: every value or not; None decides by
    `whole_is_quick`. powers: of the operands' factors.
    """
    if whole_is_quick(problem) if whole is None else whole:
        exact: Array = exact_output(problem, first, second) * np.float32(scale)
        if powers is not None:
            exact = powers.scaled(factor_axes(problem), 2, exact)
        return Expectation(encode(exact, problem.result_dtype), None)
    points = spot_points(problem, seed)
    exact = exact_values(problem, first, second, points).astype(np.float32) * np.float32(scale)
    if powers is not None:
        result = factor_axes(problem).result
        rows, columns = (np.broadcast_to(one, result.extents).ravel()[points] for one in result.places)
        exact = np.ldexp(exact, powers.rows[rows] + powers.columns[columns])
    return Expectation(encode(exact, problem.result_dtype), points)


def exact_output(problem: Problem, first: Integers, second: Integers) -> npt.NDArray[np.float32]:
    """Returns the whole output. It is exact because all sums stay below 2^24."""
    return sums_of_products(problem.op).exact_output(problem, first, second)


def exact_values(
    problem: Problem, first: Integers, second: Integers, points: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Single output values, exact in float64, computed by the definition of the operation."""
    return sums_of_products(problem.op).exact_values(problem, first, second, points)


def spot_points(problem: Problem, seed: int) -> npt.NDArray[np.int64]:
    """Flat output indices: all corners of the tensor, first and last values, and random ones."""
    shape = problem.operand_shapes[2]
    count = max(64, min(_SPOT_POINTS, _SPOT_PRODUCTS // gemm_shape(problem)[2]))
    corners = [
        np.ravel_multi_index(corner, shape)
        for corner in itertools.product(*({0, extent - 1} for extent in shape))
    ]
    generator = np.random.default_rng(seed)
    random = generator.integers(0, math.prod(shape), size=max(1, count - len(corners)))
    return np.unique(np.concatenate([np.array(corners, np.int64), random.astype(np.int64)]))
