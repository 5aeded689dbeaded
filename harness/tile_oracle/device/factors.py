"""Powers of two and signs by which the operands of a sum of products are scaled, and its result with them.

A row of the first operand has a factor r, a column of the second one c, and each depth, along which products
are summed, a factor d in the first operand and 1/d in the second. A product then has the factor r c, whatever
d is, and so has the result. Factors that are powers of two, or signs, leave exact results exact, and give
each operand the exponents that its format has and new signs everywhere.

For a convolution, a row is an image (forward, bwd_data) or an input channel (bwd_weight), a column is a
channel of the result (bwd_weight: an output channel), and the depth is the channel that is summed over
(bwd_weight: the image).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem

Four = tuple[int, int, int, int]
Vector = npt.NDArray[Any]


@dataclass(frozen=True)
class Axes:
    """A tensor as four axes, and where the factors of its elements are in two vectors.

    The element at (a, b, c, d) has the factors at the sums of each position times its step.
    """

    extents: Four
    one: Four
    other: Four

    @cached_property
    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Indices into both vectors, which NumPy broadcasts to `extents`."""
        return self._indices(self.one), self._indices(self.other)

    def _indices(self, steps: Four) -> npt.NDArray[np.int64]:
        total = np.zeros((1, 1, 1, 1), np.int64)
        for axis, (extent, step) in enumerate(zip(self.extents, steps, strict=True)):
            if step:
                shape = [1, 1, 1, 1]
                shape[axis] = extent
                total = total + step * np.arange(extent).reshape(shape)
        return total

    @property
    def sizes(self) -> tuple[int, int]:
        """Lengths of both vectors."""
        one, other = (
            1 + sum((extent - 1) * step for extent, step in zip(self.extents, steps, strict=True))
            for steps in (self.one, self.other)
        )
        return one, other

    def spread(self, one: Vector, other: Vector) -> tuple[Vector, Vector]:
        """Returns the elements of both vectors for each element of the tensor, to be broadcast to
        `extents`."""
        first, second = self.places
        return one[first], other[second]

    @property
    def merged(self) -> Axes:
        """The same with as long a last axis as possible, along which each factor is one or follows the
        vector."""
        kept: list[tuple[int, int, int]] = []
        for extent, *steps in reversed(list(zip(self.extents, self.one, self.other, strict=True))):
            inner = kept[-1] if kept else (1, 0, 0)
            if extent == 1:
                continue
            if kept and all(step == inner[0] * small for step, small in zip(steps, inner[1:], strict=True)):
                kept[-1] = (inner[0] * extent, *inner[1:])
            else:
                kept.append((extent, steps[0], steps[1]))
        kept += [(1, 0, 0)] * (4 - len(kept))
        extents, one, other = zip(*reversed(kept), strict=True)
        return Axes(extents, one, other)


class FactorAxes(NamedTuple):
    """The factors of the first operand (rows, depths), the second (columns, depths) and the result (rows,
    columns)."""

    first: Axes
    second: Axes
    result: Axes


@dataclass(frozen=True)
class Exponents:
    """The exponents of factors, of one for each row, column and depth."""

    rows: npt.NDArray[np.int32]
    columns: npt.NDArray[np.int32]
    depths: npt.NDArray[np.int32]

    def scaled(self, axes: FactorAxes, number: int, values: Vector) -> npt.NDArray[np.float32]:
        """Values of the first operand (number 0), the second or the result, times their factors."""
        vectors = ((self.rows, self.depths), (self.columns, -self.depths), (self.rows, self.columns))[number]
        one, other = axes[number].spread(*vectors)
        shaped = values.reshape(axes[number].extents).astype(np.float32, copy=False)
        return np.asarray(np.ldexp(shaped, one + other).reshape(values.shape))


def factor_axes(problem: Problem) -> FactorAxes:
    """Returns where the factors of a problem's operands and result are."""
    return _axes_of(cast("Hashable", problem))


@lru_cache(4)
def _axes_of(problem: Any) -> FactorAxes:
    return sums_of_products(problem.op).factor_axes(problem)


class Range(NamedTuple):
    """Exponents of rows and columns run from least to most, those of depths from -depth to depth."""

    least: int
    most: int
    depth: int


RANGES = {
    "bf16": Range(-20, 20, 20),
    "fp32": Range(-20, 20, 20),
    "fp16": Range(-3, 0, 7),
    "fp8": Range(-2, 2, 2),
}
"""No operand and no result is subnormal or overflows: units of tile_oracle.device.check_data are integers of
at most 24 bits times 1 (bf16, fp32), 2^-4 (fp16) or 2^-2 (fp8)."""


def exponents(axes: FactorAxes, dtype: str, seed: int) -> Exponents:
    """Random exponents. The first of each vector is the least, the second the largest."""
    random, limits = np.random.default_rng((seed, 97)), RANGES[dtype]
    (rows, depths), (columns, _) = axes.first.sizes, axes.second.sizes

    def some(count: int, least: int, most: int) -> npt.NDArray[np.int32]:
        drawn = random.integers(least, most + 1, count, dtype=np.int32)
        drawn[:2] = (least, most)[:count]
        return drawn

    return Exponents(
        some(rows, limits.least, limits.most),
        some(columns, limits.least, limits.most),
        some(depths, -limits.depth, limits.depth),
    )
