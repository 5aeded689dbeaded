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

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tile_oracle.device.check_data import Integers, column_count
from tile_oracle.number_formats import Array, decode
from tile_oracle.problem import GemmProblem, GroupedConvProblem, Problem

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
        got = _contracted(self.problem, out, weights)
        wrong = ~(got == self.wanted)  # NaN is wrong
        if not wrong.any():
            return None
        row = int(np.argmax(wrong))
        if isinstance(self.problem, GemmProblem) or self.problem.direction != "bwd_weight":
            return row * (out.size // len(self.wanted))
        span = out.size // self.problem.K
        group, place = divmod(row, span)
        return group * (self.problem.K // self.problem.G) * span + place


def product_check(problem: Problem, first: Integers, second: Integers, seed: int) -> ProductCheck:
    """Of integer operands whose result the dtype stores exactly."""
    columns = column_count(problem)
    weights = np.random.default_rng((seed, columns)).integers(0, _VALUES, size=columns).astype(np.float64)
    return ProductCheck(problem, weights, _expected(problem, first, second, weights))


def _contracted(problem: Problem, out: Array, weights: Vector) -> Vector:
    """A result times the weights of its columns."""
    if isinstance(problem, GroupedConvProblem) and problem.direction == "bwd_weight":
        groups = out.reshape(problem.G, problem.K // problem.G, -1)
        factors = weights.reshape(problem.G, -1)
        parts = [
            factors[g] @ decode(groups[g], problem.result_dtype).astype(np.float64) for g in range(problem.G)
        ]
        return np.concatenate(parts)
    rows = out.reshape(-1, len(weights))
    got = np.empty(len(rows))
    step = max(1, _AT_ONCE // len(weights))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        got[start : start + step] = decode(part, problem.result_dtype).astype(np.float64) @ weights
    return got


def _expected(problem: Problem, first: Integers, second: Integers, weights: Vector) -> Vector:
    if isinstance(problem, GemmProblem):
        a = first if problem.layout[0] == "r" else first.T
        b = second if problem.layout[1] == "r" else second.T
        return _times(a, _times(b, weights))
    if problem.direction == "bwd_weight":
        return _weight_gradient(problem, first, second, weights)
    p = problem
    taps = math.prod(p.filter)
    forward = p.direction == "forward"
    c, k = p.C // p.G, p.K // p.G
    w = second.reshape(p.G, k, taps, c)
    if forward:  # (tap, C): the weights of all output channels in one
        one = np.einsum("gktc,gk->tgc", w, weights.reshape(p.G, k), optimize=True).reshape(taps, p.C)
    else:  # (tap, K)
        one = np.einsum("gktc,gc->tgk", w, weights.reshape(p.G, c), optimize=True).reshape(taps, p.K)
    source = p.input_spatial if forward else p.output_spatial
    target = p.output_spatial if forward else p.input_spatial
    out = np.empty((p.N, *target))
    for n in range(p.N):
        # (pixels, taps): what each pixel adds by each tap
        parts = _times(first[n].reshape(math.prod(source), -1), np.ascontiguousarray(one.T))
        out[n] = _gather(p, parts) if forward else _scatter(p, parts)
    return out.reshape(-1)


def _times(matrix: Integers, vector: Vector) -> Vector:
    """matrix @ vector in float64, some rows at a time."""
    out = np.empty((matrix.shape[0], *vector.shape[1:]))
    step = max(1, _AT_ONCE // max(1, matrix.shape[1]))
    for start in range(0, len(out), step):
        out[start : start + step] = matrix[start : start + step].astype(np.float64) @ vector
    return out


def _padded(p: GroupedConvProblem) -> list[int]:
    return [i + 2 * pad for i, pad in zip(p.input_spatial, p.pad, strict=True)]


def _window(p: GroupedConvProblem, tap: tuple[int, ...]) -> tuple[slice, ...]:
    """Where in the padded input a filter tap meets each output position."""
    return tuple(
        slice(t * d, t * d + (o - 1) * s + 1, s)
        for t, d, o, s in zip(tap, p.dilation, p.output_spatial, p.stride, strict=True)
    )


def _inner(p: GroupedConvProblem) -> tuple[slice, ...]:
    return tuple(slice(pad, pad + i) for i, pad in zip(p.input_spatial, p.pad, strict=True))


def _taps(p: GroupedConvProblem) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(extent) for extent in p.filter)))


def _gather(p: GroupedConvProblem, parts: Vector) -> Vector:
    """Of one image: output positions from what each input pixel adds."""
    padded = np.zeros(_padded(p))
    out = np.zeros(p.output_spatial)
    for number, tap in enumerate(_taps(p)):
        padded[_inner(p)] = parts[:, number].reshape(p.input_spatial)
        out += padded[_window(p, tap)]
    return out


def _scatter(p: GroupedConvProblem, parts: Vector) -> Vector:
    """Of one image: input positions from what each output pixel adds."""
    padded = np.zeros(_padded(p))
    for number, tap in enumerate(_taps(p)):
        padded[_window(p, tap)] += parts[:, number].reshape(p.output_spatial)
    return np.asarray(padded[_inner(p)])


def _weight_gradient(p: GroupedConvProblem, first: Integers, second: Integers, weights: Vector) -> Vector:
    """(G, tap, C/G), flat."""
    c, k = p.C // p.G, p.K // p.G
    out = np.zeros((p.G, math.prod(p.filter), c))
    padded = np.zeros((*_padded(p), p.G, c))
    for n in range(p.N):
        padded[_inner(p)] = first[n]
        gradient = np.einsum(
            "pgk,gk->gp", second[n].reshape(-1, p.G, k).astype(np.float64), weights.reshape(p.G, k)
        )
        for number, tap in enumerate(_taps(p)):
            window = padded[_window(p, tap)].reshape(-1, p.G, c)
            for g in range(p.G):
                out[g, number] += gradient[g] @ window[:, g]
    return out.reshape(-1)
