"""Every value of a large result is checked by products with random integers, after Freivalds.

To check C = A B costs as much as to compute it; to check C r = A (B r) for a vector r costs three
products of a matrix and a vector. If C differs anywhere from A B, a row of the difference has an element
that is not zero, and for given other elements of r at most one value of the element of r that meets it
makes that row's product zero. With elements of r drawn evenly from `_VALUES` = 2^20 integers, a wrong
result passes with a probability of at most 2^-20, 1e-6, wherever it is wrong and by however much (R.
Freivalds, Probabilistic machines can use less running time, IFIP Congress 1977). The bound holds for each
kernel whose result does not depend on r; r is made from the seed of the data, after the operands, and is
never in their memory.

A convolution is linear in each operand, so the same holds of it: the result, multiplied along its columns
(output channels forward and in the weight's gradient, input channels in the data's), is the convolution
with one operand multiplied so, which then has a single column. Of the weight's gradient that is one
column a group.

All numbers are integers below 2^53 (which `countable` sees to), so float64 computes both sides exactly in
any order. The result must be exact, too, as its dtype stores it: tile_oracle.device.check_data.countable
makes such operands.
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
    """What the products of a right result are.

    weights: r, one for each column. wanted: the products, one for each row of the result (of the weight's
    gradient: for each value of a group's columns).
    """

    problem: Problem
    weights: Vector
    wanted: Vector
    kind: str = "product"

    @property
    def count(self) -> int:
        """How many values of the result take part."""
        return math.prod(self.problem.operand_shapes[2])

    def wrong_row(self, out: Array, sign: Vector | None = None) -> int | None:
        """The flat index of the first value of a row whose product is wrong, or None.

        out: the result as the dtype stores it, flat. sign: 1 or -1 for each column, where the result
        shall be that of operands with negated columns.
        """
        weights = self.weights if sign is None else self.weights * sign
        operation = sums_of_products(self.problem.op)
        got = operation.weighted(self.problem, out, weights)
        wrong = ~(got == self.wanted)  # NaN is wrong
        if not wrong.any():
            return None
        return operation.first_of_row(self.problem, int(np.argmax(wrong)))


def product_check(problem: Problem, first: Integers, second: Integers, seed: int) -> ProductCheck:
    """Of integer operands whose result the dtype stores exactly."""
    columns = column_count(problem)
    weights = np.random.default_rng((seed, columns)).integers(0, _VALUES, size=columns).astype(np.float64)
    return ProductCheck(
        problem, weights, sums_of_products(problem.op).weighted_product(problem, first, second, weights)
    )


def weighted_rows(out: Array, dtype: str, weights: Vector) -> Vector:
    """Rows of a result, whose columns lie side by side in memory, times the weights of its columns."""
    rows = out.reshape(-1, len(weights))
    got = np.empty(len(rows))
    step = max(1, _AT_ONCE // len(weights))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        got[start : start + step] = decode(part, dtype).astype(np.float64) @ weights
    return got


def times(matrix: npt.NDArray[np.integer[Any]], vector: Vector) -> Vector:
    """matrix @ vector in float64, some rows at a time."""
    out = np.empty((matrix.shape[0], *vector.shape[1:]))
    step = max(1, _AT_ONCE // max(1, matrix.shape[1]))
    for start in range(0, len(out), step):
        out[start : start + step] = matrix[start : start + step].astype(np.float64) @ vector
    return out
