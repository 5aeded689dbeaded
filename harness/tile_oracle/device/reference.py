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
from tile_oracle.problem import GemmProblem, GroupedConvProblem, Problem

Integers = npt.NDArray[np.integer[Any]]
Index = tuple[Any, ...]
"""What indexes an array along several axes."""

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
    return problem.gemm_shape[2]


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


def _window(problem: GroupedConvProblem, tap: tuple[int, ...]) -> Index:
    """Where in the padded input a filter tap meets each output position."""
    windows = (
        slice(t * d, t * d + (o - 1) * s + 1, s)
        for t, d, o, s in zip(tap, problem.dilation, problem.output_spatial, problem.stride, strict=True)
    )
    return (slice(None), *windows)


def _by_group(array: Array, group: int, channels: int) -> npt.NDArray[np.float32]:
    """(..., G, channels) as (G, rows, channels)."""
    return np.ascontiguousarray(array.reshape(-1, group, channels).transpose(1, 0, 2), dtype=np.float32)


def exact_output(problem: Problem, first: Integers, second: Integers) -> npt.NDArray[np.float32]:
    """The whole output, one matrix product a filter tap. Exact, as all sums stay below 2^24."""
    if isinstance(problem, GemmProblem):
        a, b = _matrices(problem, first, second)
        return np.asarray(a.astype(np.float32) @ b.astype(np.float32))
    p = problem
    groups, c, k = p.G, p.C // p.G, p.K // p.G
    padding = [(0, 0), *((pad, pad) for pad in p.pad), (0, 0), (0, 0)]
    at: Index
    taps = list(itertools.product(*(range(extent) for extent in p.filter)))
    rows_shape = (p.N, *p.output_spatial, groups)
    if p.direction == "forward":
        padded = np.pad(first, padding)
        out = np.zeros((groups, math.prod(rows_shape[:-1]), k), np.float32)
        for tap in taps:
            at = (slice(None), slice(None), *tap)
            weight = second[at].astype(np.float32)  # (G, K/G, C/G)
            out += _by_group(padded[_window(p, tap)], groups, c) @ weight.transpose(0, 2, 1)
        return np.ascontiguousarray(out.transpose(1, 0, 2)).reshape(p.output_shape)
    if p.direction == "bwd_data":
        gradient = _by_group(first, groups, k)
        extents = [i + 2 * pad for i, pad in zip(p.input_spatial, p.pad, strict=True)]
        out = np.zeros((p.N, *extents, groups, c), np.float32)
        for tap in taps:
            at = (slice(None), slice(None), *tap)
            weight = second[at].astype(np.float32)
            rows = (gradient @ weight).transpose(1, 0, 2)
            out[_window(p, tap)] += rows.reshape(*rows_shape, c)
        inner: Index = tuple(slice(pad, pad + i) for i, pad in zip(p.input_spatial, p.pad, strict=True))
        whole: Index = (slice(None), *inner)
        return np.ascontiguousarray(out[whole])
    padded = np.pad(first, padding)
    gradient = np.ascontiguousarray(_by_group(second, groups, k).transpose(0, 2, 1))
    out = np.empty(p.weight_shape, np.float32)
    for tap in taps:
        at = (slice(None), slice(None), *tap)
        out[at] = gradient @ _by_group(padded[_window(p, tap)], groups, c)
    return out


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


def exact_values(
    problem: Problem,
    first: Integers,
    second: Integers,
    points: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Single output values in 64-bit integers, straight from the definition of the operation."""
    if isinstance(problem, GemmProblem):
        return _exact_products(problem, first, second, points)
    if problem.direction == "bwd_weight":
        return _exact_weight_gradients(problem, first, second, points)
    p = problem
    forward = p.direction == "forward"
    n, *position, group, channel = np.unravel_index(points, p.operand_shapes[2])
    total = np.zeros(len(points), np.int64)
    bounds = p.input_spatial if forward else p.output_spatial
    for tap in itertools.product(*(range(extent) for extent in p.filter)):
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
        rows = first[(n, *where, group)].astype(np.int64)
        weights: Index = (group, channel, *tap) if forward else (group, slice(None), *tap, channel)
        columns = second[weights]
        total += np.where(inside, (rows * columns).sum(axis=1), 0)
    return total


def _matrices(problem: GemmProblem, first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """A as (M, K) and B as (K, N), whatever their order in memory."""
    a = first if problem.layout[0] == "r" else first.T
    b = second if problem.layout[1] == "r" else second.T
    return a, b


def _exact_products(
    problem: GemmProblem,
    first: Integers,
    second: Integers,
    points: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    a, b = _matrices(problem, first, second)
    rows, columns = np.divmod(points, problem.N)
    total = np.empty(len(points), np.int64)
    at_once = max(1, _BLOCK // problem.K)
    for start in range(0, len(points), at_once):
        part = slice(start, start + at_once)
        products = a[rows[part]].astype(np.int64) * b[:, columns[part]].T
        total[part] = products.sum(axis=1)
    return total


def _exact_weight_gradients(
    problem: GroupedConvProblem,
    first: Integers,
    second: Integers,
    points: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    p = problem
    total = np.zeros(len(points), np.int64)
    indices = np.stack(np.unravel_index(points, p.weight_shape), axis=1)
    for row, (group, k, *tap, c) in enumerate(indices):
        source, target = [], []
        for axis in range(p.ndim):
            offset = int(tap[axis]) * p.dilation[axis] - p.pad[axis]
            s = p.stride[axis]
            start = max(0, -(offset // s))  # first output position whose input is not left of the image
            stop = min(p.output_spatial[axis], (p.input_spatial[axis] - 1 - offset) // s + 1)
            stop = max(start, stop)
            target.append(slice(start, stop))
            source.append(slice(start * s + offset, max(start * s + offset, (stop - 1) * s + offset + 1), s))
        x_at: Index = (slice(None), *source, group, c)
        dy_at: Index = (slice(None), *target, group, k)
        x, dy = first[x_at].astype(np.int64), second[dy_at].astype(np.int64)
        total[row] = (x * dy).sum()
    return total
