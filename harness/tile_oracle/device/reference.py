"""The exact results of operands that are integers times a power of two.

Every partial sum of tile_oracle.device.check_data's integers stays below 2^24. fp32 accumulation is then
exact in any order, and the only rounding is the last one, to the output's dtype. The expected output is known
bit for bit, and a check needs no tolerance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.factors import Exponents, factor_axes
from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import Array, encode

Integers = npt.NDArray[np.integer[Any]]


def expected_output(
    problem: Problem, first: Integers, second: Integers, scale: float, powers: Exponents
) -> Array:
    """Returns the result in its storage format.

    scale: factor from integers to results, a power of two. powers: of the operands' factors.
    """
    exact = exact_output(problem, first, second) * np.float32(scale)
    return encode(powers.scaled(factor_axes(problem), 2, exact), problem.result_dtype)


def exact_output(problem: Problem, first: Integers, second: Integers) -> npt.NDArray[np.float32]:
    """Returns the whole output. It is exact because all sums stay below 2^24."""
    return sums_of_products(problem.op).exact_output(problem, first, second)
