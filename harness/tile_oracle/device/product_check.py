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

from tile_oracle.device.check_data import Integers
from tile_oracle.device.factors import Exponents, factor_axes
from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import Array, decode

_VALUES = 1 << 20
_AT_ONCE = 1 << 20

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ProductCheck:
    """The products of a correct result.

    weights: r, one element per column. wanted: the products, one per row of the result (for bwd_weight: one
    per value of a group's columns). rows: the number of each product's row among the factors.
    """

    problem: Problem
    weights: Vector
    wanted: Vector
    rows: npt.NDArray[np.int64]
    kind: str = "product"

    @property
    def count(self) -> int:
        """Number of values of the result."""
        return math.prod(self.problem.operand_shapes[2])

    def wrong_row(self, out: Array, negative: tuple[Array, Array] | None = None) -> int | None:
        """Returns the flat index of the first value of the first wrong row, or None.

        out: the flat result in the dtype's storage format. negative: which rows and columns were negated.
        """
        weights, wanted = self.weights, self.wanted
        if negative is not None:
            rows, columns = (np.where(one, -1.0, 1.0) for one in negative)
            weights, wanted = weights * columns, wanted * rows[self.rows]
        operation = sums_of_products(self.problem.op)
        got = operation.weighted(self.problem, out, weights)
        wrong = ~(got == wanted)  # NaN is wrong
        if not wrong.any():
            return None
        return operation.first_of_row(self.problem, int(np.argmax(wrong)))


def product_check(
    problem: Problem, first: Integers, second: Integers, seed: int, powers: Exponents | None = None
) -> ProductCheck:
    """Makes the check for integer operands whose result the dtype stores exactly. powers: of the operands'
    factors. Those of columns are taken out of the weights again, so that all sums stay exact."""
    operation, axes = sums_of_products(problem.op), factor_axes(problem).result
    columns = axes.sizes[1]
    weights = np.random.default_rng((seed, columns)).integers(0, _VALUES, size=columns).astype(np.float64)
    wanted = operation.weighted_product(problem, first, second, weights)
    row_of = np.broadcast_to(axes.places[0], axes.extents).ravel()
    rows = row_of[[operation.first_of_row(problem, row) for row in range(len(wanted))]]
    if powers is not None:
        weights, wanted = np.ldexp(weights, -powers.columns), np.ldexp(wanted, powers.rows[rows])
    return ProductCheck(problem, weights, wanted, rows)


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
