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
from tile_oracle.device.reference import Integers
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem.number_formats import Array

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
