"""Infinities and NaN in the operands of a sum of products, where IEEE 754 defines what comes of them.

Exactly the sums with a product of such an element are infinite or NaN: a NaN, or infinities of both signs,
give NaN in any order of summation. No operand has a zero, since whether an infinity times zero is computed is
left to a kernel. For the same reason no such element of the second operand meets padding, which a kernel may
replace with zeros or leave out, and where groups may be merged, all channels of a pixel are NaN.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tile_oracle.device.check_data import Pattern, dense
from tile_oracle.device.factors import Axes, factor_axes
from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem

NOT_FINITE = "infinities and NaN"
"""Name of the pattern."""
_MOST = (64, 16)
"""Most elements of each operand that are not finite: as many that about a quarter of the sums has one."""
_MOST_PIXELS = 8
_VALUES = (math.nan, math.inf, -math.inf)


@dataclass(frozen=True)
class Spoilt:
    """Elements of an operand that are not finite: their flat indices, each once, and their values."""

    places: npt.NDArray[np.int64]
    values: npt.NDArray[np.float32]


def not_finite(problem: Problem) -> Pattern:
    """Integers as in the dense pattern, without zeros; `spoilt` says which elements are not finite."""
    pattern = dense(problem)
    return replace(pattern, name=NOT_FINITE, first=(1, pattern.first[1]), second=(1, pattern.second[1]))


def spoilt(problem: Problem, number: int, seed: int) -> Spoilt:
    """Returns the elements of the first (number 0) or second operand that are not finite."""
    random = np.random.default_rng((seed, number, zlib.crc32(b"not finite")))
    shape = problem.operand_shapes[number]
    results = math.prod(problem.operand_shapes[2])
    count = int(results * math.prod(shape) / (2 * problem.flops))
    operation = sums_of_products(problem.op)
    together = operation.elements_together(problem)
    if number == 0 and together > 1:
        pixels = random.integers(
            0, math.prod(shape) // together, max(1, min(_MOST_PIXELS, count // together))
        )
        pixels[0] = 0
        places = np.unique(pixels)[:, None] * together + np.arange(together)
        return Spoilt(places.ravel(), np.full(places.size, math.nan, np.float32))
    if number == 0:
        axes = factor_axes(problem).first
        places = random.integers(0, math.prod(shape), max(1, min(_MOST[0], count)))
        # Some are where loads that reach too far, or whose addresses are clamped, are likely to end.
        places[2::4] -= places[2::4] % axes.extents[3]
        places[0] = 0
        # Beside every other one another of the same row, so that infinities meet in a sum.
        places[1::2] = _at_another_depth(axes, places[: len(places) // 2 * 2 : 2])
    else:
        allowed = operation.without_padding(problem)
        count = min(_MOST[1], count)
        if not count or not all(map(len, allowed)):
            count, allowed = 0, [np.zeros(1, np.int64)] * len(shape)
        places = np.ravel_multi_index([random.choice(one, count) for one in allowed], shape)
    places = np.unique(places)
    kinds = random.permutation(np.arange(len(places))) % (1 if problem.dtype == "fp8" else len(_VALUES))
    return Spoilt(places, np.array(_VALUES, np.float32)[kinds])


def _at_another_depth(axes: Axes, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the neighbours of elements along the axis of depths, or they themselves if it is short."""
    axis = max((a for a in range(4) if axes.other[a] and axes.extents[a] > 1), default=None)
    if axis is None:
        return places
    stride = math.prod(axes.extents[axis + 1 :])
    return places + np.where(places // stride % axes.extents[axis], -stride, stride)
