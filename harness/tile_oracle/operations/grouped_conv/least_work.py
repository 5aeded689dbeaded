"""The least work of a convolution (see `tile_oracle.operation.Operation.least_work`)."""

from __future__ import annotations

import math

from tile_oracle.operation.least_work import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem.number_formats import STORAGE

_FEWER_PRODUCTS = 4
"""Reduction of multiplications for filters with several taps: Winograd's F(4x4, 3x3), Lavin and Gray 2016."""


def least_work(problem: GroupedConvProblem) -> tuple[float, int]:
    """Returns the operations that any known exact algorithm needs, and the bytes of the operands that the
    result depends on. Only products inside the image count."""
    p = problem
    meetings = [_meetings(p, axis) for axis in range(p.ndim)]
    if not all(meetings):
        return 0.0, 0
    products = p.N * p.G * (p.C // p.G) * (p.K // p.G) * math.prod(map(len, meetings))
    fewer = _FEWER_PRODUCTS if math.prod(p.filter) > 1 else FEWER_PRODUCTS_OF_MATRICES
    used = [[set(places) for places in zip(*axis, strict=True)] for axis in meetings]
    images, taps, results = (math.prod(len(axis[part]) for axis in used) for part in range(3))
    images, weights, results = p.N * p.C * images, p.K * (p.C // p.G) * taps, p.N * p.K * results
    read = {"forward": images + weights, "bwd_data": results + weights, "bwd_weight": images + results}
    return 2 * products / fewer, STORAGE[p.dtype].itemsize * read[p.direction]


def _meetings(p: GroupedConvProblem, axis: int) -> list[tuple[int, int, int]]:
    """(input, tap, output) positions along an axis that are combined inside the image."""
    stride, pad, dilation = p.stride[axis], p.pad[axis], p.dilation[axis]
    extent = p.input_spatial[axis]
    return [
        (place, tap, out)
        for tap in range(p.filter[axis])
        for out in range(p.output_spatial[axis])
        if 0 <= (place := out * stride + tap * dilation - pad) < extent
    ]
