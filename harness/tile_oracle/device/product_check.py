"""Checks every value of a large result with Freivalds' algorithm: products with random integers.

Checking C = A B directly costs as much as computing it. Checking C r = A (B r) for a vector r costs three
matrix-vector products. If C differs from A B, some row of the difference has a nonzero element. Whatever the
other elements of r are, at most one value of the element of r that multiplies it makes that row's product
zero. With elements of r drawn uniformly from `_VALUES` = 2^20 integers, a wrong result therefore passes with
a probability of at most 2^-20 (1e-6), wherever and by however much it is wrong (R. Freivalds, Probabilistic
machines can use less running time, IFIP Congress 1977). The bound holds for each kernel whose result does not
depend on r. r is generated from the seed of the data, after the operands, and is never in their memory.

A convolution is linear in each operand, so the same holds: the result times r along its columns (output
channels in forward and bwd_weight, input channels in bwd_data) is the convolution with one operand times r,
which then has a single column. For bwd_weight that is one column per group.

`tile_oracle.device.check_data.countable` makes operands for which the dtype stores the result exactly and all
numbers are integers below 2^53, so float64 computes both sides exactly in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.check_data import Integers, column_count
from tile_oracle.number_formats import Array, decode
from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem

_VALUES = 1 << 20
_AT_ONCE = 1 << 20

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ProductCheck:
    """The products of a correct result.

    weights: r, one element per column. wanted: the products, one per row of the result (for bwd_weight: one
    per value of a group's columns).
    """

    problem: Problem
    weights: Vector
    wanted: Vector
    kind: str = "product"

    @property
    def count(self) -> int:
        """Number of values of the result."""
        return math.prod(self.problem.operand_shapes[2])

    def wrong_row(self, out: Array, sign: Vector | None = None) -> int | None:
        """The flat index of the first value of the first wrong row, or None.

        out: the flat result in the dtype's storage format. sign: 1 or -1 for each column, when columns of the
        operand were negated.
        """
        weights = self.weights if sign is None else self.weights * sign
        operation = sums_of_products(self.problem.op)
        got = operation.weighted(self.problem, out, weights)
        wrong = ~(got == self.wanted)  # NaN is wrong
        if not wrong.any():
            return None
        return operation.first_of_row(self.problem, int(np.argmax(wrong)))


def product_check(problem: Problem, first: Integers, second: Integers, seed: int) -> ProductCheck:
    """Makes the check for integer operands whose result the dtype stores exactly."""
    columns = column_count(problem)
    weights = np.random.default_rng((seed, columns)).integers(0, _VALUES, size=columns).astype(np.float64)
    return ProductCheck(
        problem, weights, sums_of_products(problem.op).weighted_product(problem, first, second, weights)
    )


def weighted_rows(out: Array, dtype: str, weights: Vector) -> Vector:
    """Rows of a result, with columns contiguous in memory, times the weights of the columns."""
    rows = out.reshape(-1, len(weights))
    got = np.empty(len(rows))
    step = max(1, _AT_ONCE // len(weights))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        got[start : start + step] = decode(part, dtype).astype(np.float64) @ weights
    return got


def times(matrix: npt.NDArray[np.integer[Any]], vector: Vector) -> Vector:
    """matrix @ vector in float64, in blocks of rows."""
    out = np.empty((matrix.shape[0], *vector.shape[1:]))
    step = max(1, _AT_ONCE // max(1, matrix.shape[1]))
    for start in range(0, len(out), step):
        out[start : start + step] = matrix[start : start + step].astype(np.float64) @ vector
    return out
