"""No kernel is faster than the device's arithmetic and memory allow: a lower bound for the time of one run.

The bound is meant to be impossible to pass, not hard to reach. Only products inside the image count;
where a filter has several taps a kernel may use an algorithm with a quarter of the multiplications
(Winograd's F(4x4, 3x3), Lavin and Gray 2016); only operand bytes that must be read count, and of them
only what does not fit the caches; and peaks are taken with a margin (`MARGIN`) above the published ones.
A figure below the bound means that the work was not done, or that the clock is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tile_oracle.number_formats import STORAGE
from tile_oracle.problem import GemmProblem, GroupedConvProblem, Problem

MARGIN = 1.25
_FEWER_PRODUCTS = 4
"""Of a convolution with several taps."""
_FEWER_PRODUCTS_OF_MATRICES = 8 / 7
"""Strassen's, once."""


@dataclass(frozen=True)
class Limits:
    """What a device can do at most; an empty mapping and 0 where it is not known.

    flops_per_s: dtype of the operands -> operations a second. cache_bytes: of all caches.
    """

    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_per_s: float = 0.0
    cache_bytes: int = 0

    def least_ms(self, problem: Problem) -> float:
        """No run takes less, in milliseconds; 0 where nothing is known."""
        peak = self.flops_per_s.get(problem.dtype, 0.0) * MARGIN
        arithmetic = least_flops(problem) / peak if peak else 0.0
        speed = self.memory_bytes_per_s * MARGIN
        memory = max(0, bytes_read(problem) - self.cache_bytes) / speed if speed else 0.0
        return 1e3 * max(arithmetic, memory)


def impossible(problem: Problem, limits: Limits, latency_ms: float) -> str | None:
    """Why a latency cannot be, or None."""
    least = limits.least_ms(problem)
    if latency_ms >= least:
        return None
    return (
        f"{latency_ms:.3g} ms a run is faster than the device can be: at its peak the arithmetic, or the way "
        f"of the operands from memory, takes {least:.3g} ms"
    )


def least_flops(problem: Problem) -> float:
    """Operations that every algorithm known for exact results needs."""
    if isinstance(problem, GemmProblem):
        return problem.flops / _FEWER_PRODUCTS_OF_MATRICES
    taps = math.prod(problem.filter)
    inside = math.prod(len(_meetings(problem, axis)) for axis in range(problem.ndim))
    products = problem.N * problem.G * (problem.C // problem.G) * (problem.K // problem.G) * inside
    return 2 * products / (_FEWER_PRODUCTS if taps > 1 else _FEWER_PRODUCTS_OF_MATRICES)


def bytes_read(problem: Problem) -> int:
    """Bytes of the operands that the result depends on."""
    size = STORAGE[problem.dtype].itemsize
    if isinstance(problem, GemmProblem):
        return size * (problem.M + problem.N) * problem.K
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
