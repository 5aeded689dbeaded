"""Computes products of a convolution's result with weights of its columns from the operands (see
`tile_oracle.device.product_check`)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tile_oracle.device.check_data import Integers
from tile_oracle.device.product_check import Vector, times, weighted_rows
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem.number_formats import Array, decode


def weighted(problem: GroupedConvProblem, out: Array, weights: Vector) -> Vector:
    """Returns a result times the weights of its columns."""
    if problem.direction != "bwd_weight":
        return weighted_rows(out, problem.result_dtype, weights)
    groups = out.reshape(problem.G, problem.K // problem.G, -1)
    factors = weights.reshape(problem.G, -1)
    parts = [
        factors[g] @ decode(groups[g], problem.result_dtype).astype(np.float64) for g in range(problem.G)
    ]
    return np.concatenate(parts)


def first_of_row(problem: GroupedConvProblem, row: int) -> int:
    """Returns the flat index of the first value of a row of `weighted`."""
    values = math.prod(problem.operand_shapes[2])
    if problem.direction != "bwd_weight":
        count = problem.K if problem.direction == "forward" else problem.C
        return row * count
    span = values // problem.K
    group, place = divmod(row, span)
    return group * (problem.K // problem.G) * span + place


def weighted_product(
    problem: GroupedConvProblem, first: Integers, second: Integers, weights: Vector
) -> Vector:
    """Returns the value of `weighted` for the correct result."""
    if problem.direction == "bwd_weight":
        return _weight_gradient(problem, first, second, weights)
    p = problem
    taps = math.prod(p.filter)
    forward = p.direction == "forward"
    c, k = p.C // p.G, p.K // p.G
    w = second.reshape(p.G, k, taps, c)
    if forward:  # (tap, C): summed over the output channels
        one = np.einsum("gktc,gk->tgc", w, weights.reshape(p.G, k), optimize=True).reshape(taps, p.C)
    else:  # (tap, K)
        one = np.einsum("gktc,gc->tgk", w, weights.reshape(p.G, c), optimize=True).reshape(taps, p.K)
    source = p.input_spatial if forward else p.output_spatial
    target = p.output_spatial if forward else p.input_spatial
    out = np.empty((p.N, *target))
    for n in range(p.N):
        # (pixels, taps): the contribution of each pixel by each tap
        parts = times(first[n].reshape(math.prod(source), -1), np.ascontiguousarray(one.T))
        out[n] = _gather(p, parts) if forward else _scatter(p, parts)
    return out.reshape(-1)


def _padded(p: GroupedConvProblem) -> list[int]:
    return [i + 2 * pad for i, pad in zip(p.input_spatial, p.pad, strict=True)]


def _window(p: GroupedConvProblem, tap: tuple[int, ...]) -> tuple[slice, ...]:
    """Returns the positions in the padded input that a filter tap combines with each output position."""
    return tuple(
        slice(t * d, t * d + (o - 1) * s + 1, s)
        for t, d, o, s in zip(tap, p.dilation, p.output_spatial, p.stride, strict=True)
    )


def _inner(p: GroupedConvProblem) -> tuple[slice, ...]:
    return tuple(slice(pad, pad + i) for i, pad in zip(p.input_spatial, p.pad, strict=True))


def _taps(p: GroupedConvProblem) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(extent) for extent in p.filter)))


def _gather(p: GroupedConvProblem, parts: Vector) -> Vector:
    """Sums the contributions of one image's input pixels at each output position."""
    padded = np.zeros(_padded(p))
    out = np.zeros(p.output_spatial)
    for number, tap in enumerate(_taps(p)):
        padded[_inner(p)] = parts[:, number].reshape(p.input_spatial)
        out += padded[_window(p, tap)]
    return out


def _scatter(p: GroupedConvProblem, parts: Vector) -> Vector:
    """Sums the contributions of one image's output pixels at each input position."""
    padded = np.zeros(_padded(p))
    for number, tap in enumerate(_taps(p)):
        padded[_window(p, tap)] += parts[:, number].reshape(p.output_spatial)
    return np.asarray(padded[_inner(p)])


def _weight_gradient(p: GroupedConvProblem, first: Integers, second: Integers, weights: Vector) -> Vector:
    """Returns the product for bwd_weight, in the order (G, tap, C/G), flat."""
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
