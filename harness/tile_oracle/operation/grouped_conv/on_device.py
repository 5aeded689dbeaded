"""Grouped convolution in a worker process (see `tile_oracle.operation.on_device`)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

from tile_oracle.device.cpu_data import ProblemData
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.roofline import FEWER_PRODUCTS_OF_MATRICES
from tile_oracle.number_formats import STORAGE
from tile_oracle.problem.grouped_conv import GroupedConvProblem

_FEWER_PRODUCTS = 4
"""Of a convolution with several taps."""

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
    """Exact integers, as for every sum of products."""
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


def least_flops(problem: GroupedConvProblem) -> float:
    """Operations that every algorithm known for exact results needs."""
    taps = math.prod(problem.filter)
    inside = math.prod(len(_meetings(problem, axis)) for axis in range(problem.ndim))
    products = problem.N * problem.G * (problem.C // problem.G) * (problem.K // problem.G) * inside
    return 2 * products / (_FEWER_PRODUCTS if taps > 1 else FEWER_PRODUCTS_OF_MATRICES)


def bytes_read(problem: GroupedConvProblem) -> int:
    """Bytes of the operands that the result depends on."""
    size = STORAGE[problem.dtype].itemsize
    p = problem
    used = [[set(places) for places in zip(*_meetings(p, axis), strict=True)] for axis in range(p.ndim)]
    if any(not axis for axis in used):
        return 0
    images = p.N * p.C * math.prod(len(axis[0]) for axis in used)
    weights = p.K * (p.C // p.G) * math.prod(len(axis[1]) for axis in used)
    results = p.N * p.K * math.prod(len(axis[2]) for axis in used)
    first, second = {
        "forward": (images, weights),
        "bwd_data": (results, weights),
        "bwd_weight": (images, results),
    }[p.direction]
    return size * (first + second)


def _meetings(p: GroupedConvProblem, axis: int) -> list[tuple[int, int, int]]:
    """(input, tap, output) positions along an axis that meet inside the image."""
    stride, pad, dilation = p.stride[axis], p.pad[axis], p.dilation[axis]
    extent = p.input_spatial[axis]
    return [
        (place, tap, out)
        for tap in range(p.filter[axis])
        for out in range(p.output_spatial[axis])
        if 0 <= (place := out * stride + tap * dilation - pad) < extent
    ]
