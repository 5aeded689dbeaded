"""Inputs, and the exact result they must give.

Inputs are small integers, so small that every partial sum stays below 2^24: then fp32 accumulation is
exact in whatever order a kernel sums, and the only rounding is the last one, to the output's dtype.
The expected output is therefore known bit for bit and a check needs no tolerance.

Of fp32 problems one operand's integers are as large as that allows: small ones would not show that a
kernel multiplies fewer bits of an element than it has.
"""

from __future__ import annotations

import itertools
import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.number_formats import Array, encode
from tile_oracle.operation.on_device import sums_of_products
from tile_oracle.problem import Problem, gemm_shape

Integers = npt.NDArray[np.integer[Any]]

_EXACT = 1 << 24
_WIDEST = (1 << 15) - 1
_WIDE = 1 << 12
"""What the larger integers of fp32 problems reach, where smaller ones of the other operand allow it."""
_FULL_CHECK_FLOPS = 3e9
_FULL_CHECK_VALUES = 1 << 26
_SPOT_POINTS = 2048
_SPOT_PRODUCTS = 1 << 27
_BLOCK = 1 << 20


def reduction_length(problem: Problem) -> int:
    """How many products one output value sums: the implicit GEMM's K."""
    return gemm_shape(problem)[2]


@dataclass(frozen=True)
class IntegerRange:
    """The largest integers of both operands, and the share of the first one's values that is not zeroed.

    The share is 1 unless there are too many products even of ones; then it leaves a safe count.
    """

    first: int
    second: int
    kept: float


def integer_range(problem: Problem) -> IntegerRange:
    """Which integers a problem is checked with."""
    length = reduction_length(problem)
    small = next((a for a in (4, 3, 2, 1) if a * a * length < _EXACT), 1)
    if problem.dtype != "fp32" or length >= _EXACT:
        return IntegerRange(small, small, 1.0 if length < _EXACT else _EXACT / 4 / length)
    small = next((a for a in (4, 3, 2) if a * _WIDE * length < _EXACT), 1)
    large = min(_WIDEST, (_EXACT - 1) // (small * length))
    # Either operand's in turn, and always the same one's of a problem.
    if zlib.crc32(problem.id.encode()) % 2:
        return IntegerRange(large, small, 1.0)
    return IntegerRange(small, large, 1.0)


def integer_operands(problem: Problem, seed: int) -> tuple[Integers, Integers]:
    """Both operands as integers whose every partial sum of products stays below 2^24."""
    generator = np.random.default_rng(seed)
    limits = integer_range(problem)
    first, second = (
        generator.integers(-most, most + 1, size=shape, dtype=np.int8 if most < 1 << 7 else np.int16)
        for most, shape in zip((limits.first, limits.second), problem.operand_shapes[:2], strict=True)
    )
    if limits.kept < 1:
        first *= generator.random(first.shape, dtype=np.float32) < limits.kept
    return first, second


def random_operands(problem: Problem, seed: int) -> tuple[Array, Array]:
    """Both operands as normal deviates in the problem's dtype, for timing: zeros would run faster."""
    generator = np.random.default_rng(seed)
    first, second = (
        np.resize(
            encode(generator.standard_normal(min(_BLOCK, math.prod(shape)), dtype=np.float32), problem.dtype),
            shape,
        )
        for shape in problem.operand_shapes[:2]
    )
    return first, second


@dataclass(frozen=True)
class Expectation:
    """Exact output values, encoded. `points` are flat indices into the output, or None for all of it."""

    values: Array
    points: npt.NDArray[np.int64] | None

    @property
    def kind(self) -> str:
        return "full" if self.points is None else "spot"

    @property
    def count(self) -> int:
        return int(self.values.size)


def whole_is_quick(problem: Problem) -> bool:
    """Whether every output value can be computed here."""
    values = math.prod(problem.operand_shapes[2])
    return problem.flops <= _FULL_CHECK_FLOPS and values <= _FULL_CHECK_VALUES


def expectation(
    problem: Problem,
    first: Integers,
    second: Integers,
    seed: int,
    scale: float = 1.0,
    whole: bool | None = None,
) -> Expectation:
    """Every output value, or corners, edges and random places.

    scale: what an integer of the result stands for, a power of two. whole: every value or not; None:
    where it is quick.
    """
    if whole_is_quick(problem) if whole is None else whole:
        exact: Array = exact_output(problem, first, second)
        return Expectation(encode(exact * np.float32(scale), problem.result_dtype), None)
    points = spot_points(problem, seed)
    exact = exact_values(problem, first, second, points)
    return Expectation(encode(exact.astype(np.float32) * np.float32(scale), problem.result_dtype), points)


def exact_output(problem: Problem, first: Integers, second: Integers) -> npt.NDArray[np.float32]:
    """The whole output. Exact, as all sums stay below 2^24."""
    return sums_of_products(problem.op).exact_output(problem, first, second)


def exact_values(
    problem: Problem, first: Integers, second: Integers, points: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Single output values in 64-bit integers, straight from the definition of the operation."""
    return sums_of_products(problem.op).exact_values(problem, first, second, points)


def spot_points(problem: Problem, seed: int) -> npt.NDArray[np.int64]:
    """Flat output indices: all corners of the tensor, first and last values, and random ones."""
    shape = problem.operand_shapes[2]
    count = max(64, min(_SPOT_POINTS, _SPOT_PRODUCTS // reduction_length(problem)))
    corners = [
        np.ravel_multi_index(corner, shape)
        for corner in itertools.product(*({0, extent - 1} for extent in shape))
    ]
    generator = np.random.default_rng(seed)
    random = generator.integers(0, math.prod(shape), size=max(1, count - len(corners)))
    return np.unique(np.concatenate([np.array(corners, np.int64), random.astype(np.int64)]))
