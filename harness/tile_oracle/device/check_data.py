"""What operands a check multiplies, so that it sees precision and yet needs no tolerance.

All elements are integers times a power of two, so all products and sums are multiples of one unit. As
long as every partial sum stays below 2^24 units, fp32 adds exactly in any order: one after the other, in
a tree, split among workgroups, inside a matrix instruction. The only rounding is the last one, to the
result's dtype, and the expected result is known bit for bit.

Three patterns are used. Which faults each of them shows is a table of docs/verification.md.

dense      Both operands are uniform integers with signs at random, the first with as many bits as its dtype's
           mantissa has, the second with as many as exactness allows.
mantissa   The first operand has full mantissas. An even column of the second has one element that is not
           zero, with a full mantissa, too: every result is one product, in which each bit of both elements
           counts. An odd column cancels: the depth's second half repeats the first one with the opposite
           sign, but for -1, 0 or 1, so that large partial sums leave a small result.
countable  Few elements are not zero, and those are 1 or -1: every result is an integer that the result's
           dtype stores exactly. The products of a whole row or column of results with random integers can
           then be checked exactly, too (tile_oracle.device.product_check).

Bounds of sums. Given all magnitudes and the first operand, a partial sum of a pattern is a sum of
independent symmetric variables. By Hoeffding's inequality it exceeds t with a probability of at most 2
exp(-t^2 / 2V), V being the sum of the squares of its largest products. Amplitudes are such that t^2 = 140
V at t = 2^24 units: at most 8e-31 for one partial sum, below 1e-15 for the 1e15 of the largest problem
that a machine can check. (Uniform integers are even less spread than that bound supposes.)
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
"""Digits of an element, the leading one that is not stored included."""

_EXACT = 1 << 24
_UNLIKELY = 140.0
_EXPONENTS = {"bf16": 0, "fp32": 0, "fp16": -4, "fp8": -2}
"""The unit of an element is two to this power: sums of 2^24 units must not overflow the result's dtype."""
_WIDE_FP32 = (1 << 12) - 1
"""Of fp32 the dense pattern has but 12 bits: a sum of wider products would need more than 24."""
_ROOM_FOR_PRODUCTS = 1 << 33
"""Largest product times depth times columns for which results times integers below 2^20 add up below 2^53."""


@dataclass(frozen=True)
class Axis:
    """How an operand's flat index i runs along one axis: position (i // inner) % extent."""

    inner: int
    extent: int

    @property
    def half(self) -> int:
        return self.extent // 2


@dataclass(frozen=True)
class Columns:
    """How an array's flat index i belongs to a column: (i // (inner * depth)) * inner + i % inner.

    depth: how many elements a column has one after the other; their position in it is (i // inner) % depth.
    """

    inner: int
    depth: int


@dataclass(frozen=True)
class Pattern:
    """What both operands hold, in units of 2^exponent.

    first, second: magnitudes run from the first number to the second one; signs are at random. With 0 as
    the least magnitude the integers from -most to most are uniform. kept: the share of the second
    operand's (dense and countable: of both operands') elements that are not made zero. selected: even
    columns of the second operand hold one element; every_column: odd ones, too. cancelling: the largest
    magnitude in columns that cancel.
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
        """What an element's integer is multiplied with."""
        return math.ldexp(1.0, self.exponent)

    @property
    def result_scale(self) -> float:
        """What a result's integer is multiplied with."""
        return self.scale**2


def _widest(length: int, other: int) -> int:
    """The largest magnitude of uniform integers whose products with -other to other add up exactly."""
    certain = (_EXACT - 1) // (other * length)
    return max(certain, int(_EXACT / (other * math.sqrt(_UNLIKELY * length))))


def dense(problem: Problem) -> Pattern:
    """Wide integers everywhere."""
    length = gemm_shape(problem)[2]
    full = min((1 << MANTISSA_BITS[problem.dtype]) - 1, _WIDE_FP32)
    large = max(1, min(full, _widest(length, 1)))
    small = max(1, min(full, _widest(length, large)))
    # The narrower operand is the first one of half of all problems, and always the same one of a problem.
    first, second = (large, small) if zlib.crc32(problem.id.encode()) % 2 else (small, large)
    kept = min(1.0, _EXACT / _UNLIKELY**0.5 / math.sqrt(length))
    return Pattern("dense", (0, first), (0, second), _EXPONENTS[problem.dtype], kept)


def mantissa(problem: Problem) -> tuple[Pattern, ...]:
    """Full mantissas, and sums that cancel. Of fp32, either operand's in turn: a product has 48 bits."""
    bits, exponent = MANTISSA_BITS[problem.dtype], _EXPONENTS[problem.dtype]
    full = (1 << (bits - 1), (1 << bits) - 1)
    length = gemm_shape(problem)[2]
    if problem.dtype != "fp32":
        wide = min(full[1], _widest(length, full[1]))
        # Of a very deep sum no product of full mantissas fits: then no column cancels.
        return (Pattern("mantissa", full, full, exponent, 1.0, True, wide < 1, max(0, wide)),)
    one = (1, 1)
    wide = min(full[1], _widest(length, 1))
    return (
        Pattern("mantissa of the first operand", full, one, exponent, 1.0, True, True),
        Pattern("mantissa of the second operand", one, full, exponent, 1.0, True, False, wide),
    )


def countable(problem: Problem) -> Pattern:
    """Results that are stored exactly, for problems that are checked by products."""
    length = gemm_shape(problem)[2]
    if problem.result_dtype == "fp32":
        room = max(1, _ROOM_FOR_PRODUCTS // (length * column_count(problem)))
        first = min(255, room, _widest(length, 1))
        second = max(1, min(255, room // first, _widest(length, first)))
        return Pattern("countable", (0, first), (0, second), 0)
    most = 1 << MANTISSA_BITS[problem.result_dtype]
    # So few products that are not zero, 234 of bf16, that twice as many sum up to `most` or less with the
    # probability above; and that there are twice as many is less probable still.
    mean = most * most / (2 * _UNLIKELY)
    kept = 1.0 if length <= most else min(1.0, math.sqrt(mean / length))
    return Pattern("countable", (1, 1), (1, 1), 0, kept)


def fold_axes(problem: Problem) -> tuple[Axis, Axis]:
    """Along which axis of both operands the halves of the depth repeat each other."""
    return sums_of_products(problem.op).fold_axes(problem)


def columns_of_second(problem: Problem) -> Columns:
    """Which elements of the second operand make one column of the result: negated, they negate it."""
    return sums_of_products(problem.op).columns_of_second(problem)


def columns_of_result(problem: Problem) -> Columns:
    """The same columns in the result."""
    return sums_of_products(problem.op).columns_of_result(problem)


def column_count(problem: Problem) -> int:
    """How many columns the result has."""
    return math.prod(problem.operand_shapes[1]) // columns_of_second(problem).depth


def operands(problem: Problem, pattern: Pattern, seed: int) -> tuple[Integers, Integers]:
    """Both operands' integers, in the shapes of `operand_shapes`."""
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
    """Makes the second half along an axis the first one times `sign`."""
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


def negated(count: int, seed: int) -> npt.NDArray[np.bool_]:
    """Which of `count` columns one round of runs negates: half of them, in a way that no two rounds share."""
    generator = np.random.default_rng(seed)
    chosen = generator.random(count) < 0.5
    chosen[generator.integers(count)] = True
    return chosen
