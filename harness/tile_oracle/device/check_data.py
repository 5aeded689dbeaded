"""Operands for checks that test precision without needing a tolerance.

All elements are integers times a power of two, so all products and sums are multiples of one unit. While
every partial sum stays below 2^24 units, fp32 addition is exact in any order: sequentially, in a tree, split
among workgroups, inside a matrix instruction. The only rounding is the last one, to the result's dtype, so
the expected result is known bit for bit.

There are two patterns. docs/verification.md has a table of the faults that each one detects. In each, rows,
columns and depths are scaled by powers of two as well (tile_oracle.device.factors), which changes a sum by
its row's and column's factor alone.

dense      Both operands are uniform integers with random signs. The first has as many bits as its dtype's
           mantissa, the second as many as exactness allows.
mantissa   The first operand has full mantissas. An even column of the second has a single nonzero element,
           also with a full mantissa: every result is one product, in which each bit of both elements
           counts. An odd column cancels: the second half of the depth repeats the first half with the
           opposite sign, up to -1, 0 or 1, so that large partial sums leave a small result.

Bounds of sums. Given all magnitudes and the first operand, a partial sum of a pattern is a sum of independent
symmetric variables. By Hoeffding's inequality it exceeds t with a probability of at most 2 exp(-t^2 / 2V),
where V is the sum of the squares of its largest products. The amplitudes are chosen such that t^2 = 140 V at
t = 2^24 units. That gives at most 8e-31 for one partial sum, and less than 1e-15 for the 1e15 partial sums of
the largest problem that a machine can check. (The bound is conservative for uniform integers.)
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem, gemm_shape

Integers = npt.NDArray[np.int32]

MANTISSA_BITS = {"bf16": 8, "fp16": 11, "fp32": 24, "fp8": 4}
"""Bits of the significand, including the implicit leading bit."""

_EXACT = 1 << 24
_UNLIKELY = 140.0
_EXPONENTS = {"bf16": 0, "fp32": 0, "fp16": -4, "fp8": -2}
"""The unit of an element is two to this power: sums of 2^24 units must not overflow the result's dtype."""
_WIDE_FP32 = (1 << 12) - 1
"""For fp32 the dense pattern has only 12 bits, because a sum of wider products would need more than 24."""


@dataclass(frozen=True)
class Axis:
    """One axis of an operand: flat index i has position (i // inner) % extent on it."""

    inner: int
    extent: int

    @property
    def half(self) -> int:
        return self.extent // 2


@dataclass(frozen=True)
class Columns:
    """The columns of an array: flat index i is in column (i // (inner * depth)) * inner + i % inner.

    depth: elements of a column. Flat index i has position (i // inner) % depth in its column.
    """

    inner: int
    depth: int


@dataclass(frozen=True)
class Pattern:
    """The values of both operands, in units of 2^exponent.

    first, second: least and largest magnitude; signs are random. If the least magnitude is 0, integers are
    uniform between -largest and largest.
    kept: the share of elements that are not set to zero, in both operands of dense.
    selected: even columns of the second operand have a single nonzero element. every_column: so do odd ones.
    cancelling: the largest magnitude in columns that cancel.
    """

    name: str
    first: tuple[int, int]
    second: tuple[int, int]
    exponent: int
    kept: float = 1.0
    selected: bool = False
    every_column: bool = False
    cancelling: int = 0

    @property
    def scale(self) -> float:
        """The factor from an element's integer to its value."""
        return math.ldexp(1.0, self.exponent)

    @property
    def result_scale(self) -> float:
        """The factor from a result's integer to its value."""
        return self.scale**2


def _widest(length: int, other: int) -> int:
    """Returns the largest magnitude whose products with integers from -other to other sum up exactly."""
    certain = (_EXACT - 1) // (other * length)
    return max(certain, int(_EXACT / (other * math.sqrt(_UNLIKELY * length))))


def dense(problem: Problem) -> Pattern:
    """Wide integers everywhere."""
    length = gemm_shape(problem)[2]
    full = min((1 << MANTISSA_BITS[problem.dtype]) - 1, _WIDE_FP32)
    large = max(1, min(full, _widest(length, 1)))
    small = max(1, min(full, _widest(length, large)))
    # The problem's hash chooses which operand is the narrower one: each in half of all problems.
    first, second = (large, small) if zlib.crc32(problem.id.encode()) % 2 else (small, large)
    kept = min(1.0, _EXACT / _UNLIKELY**0.5 / math.sqrt(length))
    return Pattern("dense", (0, first), (0, second), _EXPONENTS[problem.dtype], kept)


def mantissa(problem: Problem) -> tuple[Pattern, ...]:
    """Full mantissas and cancelling sums. fp32 needs one pattern per operand, since a product has 48 bits."""
    bits, exponent = MANTISSA_BITS[problem.dtype], _EXPONENTS[problem.dtype]
    full = (1 << (bits - 1), (1 << bits) - 1)
    length = gemm_shape(problem)[2]
    if problem.dtype != "fp32":
        wide = min(full[1], _widest(length, full[1]))
        # In a very deep sum no product of full mantissas fits. Then no column cancels.
        return (Pattern("mantissa", full, full, exponent, 1.0, True, wide < 1, max(0, wide)),)
    one = (1, 1)
    wide = min(full[1], _widest(length, 1))
    return (
        Pattern("mantissa of the first operand", full, one, exponent, 1.0, True, True),
        Pattern("mantissa of the second operand", one, full, exponent, 1.0, True, False, wide),
    )


def fold_axes(problem: Problem) -> tuple[Axis, Axis]:
    """Returns the axis of each operand along which the second half of the depth repeats the first."""
    return sums_of_products(problem.op).fold_axes(problem)


def columns_of_second(problem: Problem) -> Columns:
    """Returns the elements of the second operand that determine a column of the result."""
    return sums_of_products(problem.op).columns_of_second(problem)


def operands(problem: Problem, pattern: Pattern, seed: int) -> tuple[Integers, Integers]:
    """Returns the integers of both operands, in the shapes of `operand_shapes`."""
    generator = np.random.default_rng((seed, zlib.crc32(pattern.name.encode())))
    first_shape, second_shape = problem.operand_shapes[:2]
    first = _integers(generator, first_shape, pattern.first)
    if not pattern.selected:
        second = _integers(generator, second_shape, pattern.second)
        if pattern.kept < 1:
            for operand in (first, second):
                operand *= generator.random(operand.shape, dtype=np.float32) < pattern.kept
        return first, second
    axes = fold_axes(problem)
    if not pattern.every_column:
        _fold(first, axes[0], 1)
    return first, _second(problem, pattern, generator, axes[1])


def _integers(
    generator: np.random.Generator, shape: tuple[int, ...], magnitudes: tuple[int, int]
) -> Integers:
    least, most = magnitudes
    if least == 0:
        return generator.integers(-most, most + 1, size=shape, dtype=np.int32)
    values = generator.integers(least, most + 1, size=shape, dtype=np.int32)
    values *= generator.integers(0, 2, size=shape, dtype=np.int32) * 2 - 1
    return values


def _fold(operand: Integers, axis: Axis, sign: int) -> None:
    """Sets the second half along an axis to the first half times `sign`."""
    view = operand.reshape(-1, axis.extent, axis.inner)
    view[:, axis.half : 2 * axis.half] = sign * view[:, : axis.half]


def _second(problem: Problem, pattern: Pattern, generator: np.random.Generator, axis: Axis) -> Integers:
    shape, columns = problem.operand_shapes[1], columns_of_second(problem)
    if pattern.every_column:
        second = np.zeros(shape, np.int32)
    else:
        second = _integers(generator, shape, (0, pattern.cancelling))
        _fold(second, axis, -1)
        halves = second.reshape(-1, axis.extent, axis.inner)[:, axis.half : 2 * axis.half]
        halves += generator.integers(-1, 2, size=halves.shape, dtype=np.int32)
    # (blocks, depth, inner): a column is one block's values of one inner index.
    view = second.reshape(-1, columns.depth, columns.inner)
    count = view.shape[0] * columns.inner
    place = generator.integers(0, columns.depth, size=count)
    value = _integers(generator, (count,), pattern.second)
    chosen = np.arange(count)
    if not pattern.every_column:
        chosen = chosen[::2]
    block, inner = chosen // columns.inner, chosen % columns.inner
    view[block, :, inner] = 0
    view[block, place[chosen], inner] = value[chosen]
    return second
