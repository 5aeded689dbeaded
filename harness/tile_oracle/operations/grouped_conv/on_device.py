"""Grouped convolution in a worker process (see `tile_oracle.operation.on_device`)."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.check_data import Axis, Columns
from tile_oracle.device.cpu_data import ProblemData
from tile_oracle.device.factors import Axes, FactorAxes
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.product_check import Vector, times, weighted_rows
from tile_oracle.device.reference import Integers
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem.number_formats import Array, decode

Index = tuple[Any, ...]
"""An index along several axes of an array."""

_EXTENTS = (
    *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "Do", "Ho", "Wo"),
    *("stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w"),
    *("dilation_d", "dilation_h", "dilation_w"),
)


class ConvArgs(ctypes.Structure):
    """kernels/cpu/abi.h: to_conv_args."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("in0", "in1", "out", "workspace")),
        *((name, ctypes.c_int64) for name in _EXTENTS),
    )


def cpu_data(problem: GroupedConvProblem, seed: int) -> ProblemData:
    """Integer data, as for every sum of products."""
    return ProblemData(problem, seed)


def cpu_arguments(
    problem: GroupedConvProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
) -> ConvArgs:
    """Extents and addresses."""
    first, second = operands
    args = ConvArgs(first.address, second.address, out.address, 0)
    for name in _EXTENTS:
        setattr(args, name, getattr(problem, name))
    return args


def fold_axes(problem: GroupedConvProblem) -> tuple[Axis, Axis]:
    """Returns the axis of each operand along which the second half of the depth repeats the first."""
    c, k = problem.C // problem.G, problem.K // problem.G
    if problem.direction == "forward":
        return Axis(1, c), Axis(1, c)
    if problem.direction == "bwd_data":
        return Axis(1, k), Axis(math.prod(problem.filter) * c, k)
    images = (math.prod(problem.input_spatial) * problem.C, math.prod(problem.output_spatial) * problem.K)
    return Axis(images[0], problem.N), Axis(images[1], problem.N)


def columns_of_second(problem: GroupedConvProblem) -> Columns:
    """Returns the elements of the second operand that determine a column of the result."""
    c, k, taps = problem.C // problem.G, problem.K // problem.G, math.prod(problem.filter)
    if problem.direction == "forward":
        return Columns(1, taps * c)
    if problem.direction == "bwd_data":
        return Columns(c, k * taps)
    return Columns(problem.K, math.prod(problem.operand_shapes[1]) // problem.K)


def factor_axes(problem: GroupedConvProblem) -> FactorAxes:
    """See tile_oracle.device.factors."""
    p = problem
    c, k = p.C // p.G, p.K // p.G
    x, y = ((p.N, math.prod(one), p.G, each) for one, each in ((p.input_spatial, c), (p.output_spatial, k)))
    w = (p.G, k, math.prod(p.filter), c)
    image = (1, 0, 0, 0)
    in_x, in_y, in_w, out_w = (0, 0, c, 1), (0, 0, k, 1), (c, 0, 0, 1), (k, 1, 0, 0)
    if p.direction == "forward":
        return FactorAxes(Axes(x, image, in_x), Axes(w, out_w, in_w), Axes(y, image, in_y))
    if p.direction == "bwd_data":
        return FactorAxes(Axes(y, image, in_y), Axes(w, in_w, out_w), Axes(x, image, in_x))
    return FactorAxes(Axes(x, in_x, image), Axes(y, in_y, image), Axes(w, in_w, out_w))


def without_padding(problem: GroupedConvProblem) -> list[npt.NDArray[np.int64]]:
    """Returns the positions on each axis of the second operand whose elements never meet padding."""
    p = problem
    allowed = [np.arange(extent) for extent in p.operand_shapes[1]]
    of_axes = zip(p.input_spatial, p.output_spatial, p.filter, p.stride, p.pad, p.dilation, strict=True)
    for axis, (size, out, taps, stride, pad, dilation) in enumerate(of_axes):
        offset, last = np.arange(taps) * dilation - pad, size - 1
        if p.direction == "forward":
            inside = (offset >= 0) & ((out - 1) * stride + offset <= last)
        elif p.direction == "bwd_data":
            inside = (stride == 1) & (offset <= 0) & (last - offset < out)
        else:
            at = np.arange(out) * stride
            inside = (at + offset[0] >= 0) & (at + offset[-1] <= last)
        allowed[axis + (1 if p.direction == "bwd_weight" else 2)] = np.flatnonzero(inside)
    return allowed


def elements_together(problem: GroupedConvProblem) -> int:
    """Returns all channels of a pixel if there are groups: kernels that merge some multiply by zeros between
    them. (Products of two groups, which bwd_weight has then, go to no result.)"""
    if problem.G == 1 or problem.direction == "bwd_weight":
        return 1
    return problem.C if problem.direction == "forward" else problem.K


def _taps(p: GroupedConvProblem) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(extent) for extent in p.filter)))


def _window(p: GroupedConvProblem, tap: tuple[int, ...]) -> Index:
    """Returns the positions in the padded input that a filter tap combines with each output position."""
    return tuple(
        slice(t * d, t * d + (o - 1) * s + 1, s)
        for t, d, o, s in zip(tap, p.dilation, p.output_spatial, p.stride, strict=True)
    )


def _padded(p: GroupedConvProblem) -> list[int]:
    return [i + 2 * pad for i, pad in zip(p.input_spatial, p.pad, strict=True)]


def _inner(p: GroupedConvProblem) -> Index:
    """Returns the positions of the input in the padded one."""
    return tuple(slice(pad, pad + i) for i, pad in zip(p.input_spatial, p.pad, strict=True))


def _by_group(array: Array, group: int, channels: int) -> npt.NDArray[np.float32]:
    """(..., G, channels) as (G, rows, channels)."""
    return np.ascontiguousarray(array.reshape(-1, group, channels).transpose(1, 0, 2), dtype=np.float32)


def exact_output(problem: GroupedConvProblem, first: Integers, second: Integers) -> npt.NDArray[np.float32]:
    """Returns the whole output, with one matrix product per filter tap. It is exact because sums stay below
    2^24."""
    p = problem
    groups, c, k = p.G, p.C // p.G, p.K // p.G
    padding = [(0, 0), *((pad, pad) for pad in p.pad), (0, 0), (0, 0)]
    at: Index
    taps = _taps(p)
    rows_shape = (p.N, *p.output_spatial, groups)
    if p.direction == "forward":
        padded = np.pad(first, padding)
        out = np.zeros((groups, math.prod(rows_shape[:-1]), k), np.float32)
        for tap in taps:
            at = (slice(None), slice(None), *tap)
            weight = second[at].astype(np.float32)  # (G, K/G, C/G)
            out += _by_group(padded[(slice(None), *_window(p, tap))], groups, c) @ weight.transpose(0, 2, 1)
        return np.ascontiguousarray(out.transpose(1, 0, 2)).reshape(p.output_shape)
    if p.direction == "bwd_data":
        gradient = _by_group(first, groups, k)
        out = np.zeros((p.N, *_padded(p), groups, c), np.float32)
        for tap in taps:
            at = (slice(None), slice(None), *tap)
            weight = second[at].astype(np.float32)
            rows = (gradient @ weight).transpose(1, 0, 2)
            out[(slice(None), *_window(p, tap))] += rows.reshape(*rows_shape, c)
        return np.ascontiguousarray(out[(slice(None), *_inner(p))])
    padded = np.pad(first, padding)
    gradient = np.ascontiguousarray(_by_group(second, groups, k).transpose(0, 2, 1))
    out = np.empty(p.weight_shape, np.float32)
    for tap in taps:
        at = (slice(None), slice(None), *tap)
        out[at] = gradient @ _by_group(padded[(slice(None), *_window(p, tap))], groups, c)
    return out


def exact_values(
    problem: GroupedConvProblem,
    first: Integers,
    second: Integers,
    points: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Single output values, exact in float64, computed by the definition of the operation."""
    if problem.direction == "bwd_weight":
        return _exact_weight_gradients(problem, first, second, points)
    p = problem
    forward = p.direction == "forward"
    n, *position, group, channel = np.unravel_index(points, p.operand_shapes[2])
    total = np.zeros(len(points))
    bounds = p.input_spatial if forward else p.output_spatial
    for tap in _taps(p):
        inside = np.ones(len(points), bool)
        where = []
        for axis, at in enumerate(position):
            offset = tap[axis] * p.dilation[axis] - p.pad[axis]
            if forward:
                source = at * p.stride[axis] + offset
            else:
                source, remainder = np.divmod(at - offset, p.stride[axis])
                inside &= remainder == 0
            inside &= (source >= 0) & (source < bounds[axis])
            where.append(np.clip(source, 0, bounds[axis] - 1))
        rows = first[(n, *where, group)].astype(np.float64)
        weights: Index = (group, channel, *tap) if forward else (group, slice(None), *tap, channel)
        columns = second[weights]
        total += np.where(inside, (rows * columns).sum(axis=1), 0)
    return total


def _exact_weight_gradients(
    problem: GroupedConvProblem,
    first: Integers,
    second: Integers,
    points: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    p = problem
    total = np.zeros(len(points))
    indices = np.stack(np.unravel_index(points, p.weight_shape), axis=1)
    for row, (group, k, *tap, c) in enumerate(indices):
        source, target = [], []
        for axis in range(p.ndim):
            offset = int(tap[axis]) * p.dilation[axis] - p.pad[axis]
            s = p.stride[axis]
            start = max(0, -(offset // s))  # first output position whose input is inside the image
            stop = min(p.output_spatial[axis], (p.input_spatial[axis] - 1 - offset) // s + 1)
            stop = max(start, stop)
            target.append(slice(start, stop))
            source.append(slice(start * s + offset, max(start * s + offset, (stop - 1) * s + offset + 1), s))
        x_at: Index = (slice(None), *source, group, c)
        dy_at: Index = (slice(None), *target, group, k)
        x, dy = first[x_at].astype(np.float64), second[dy_at].astype(np.float64)
        total[row] = (x * dy).sum()
    return total


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
