"""Scaled products in a worker process: operands whose sums are exact, results, and calls.

docs/scaled_gemm.md derives the sizes. All values are integers times powers of two, so small
that the products of any 128 depths sum up to less than 2^14, which Hopper's fp8 instructions hold exactly,
and all products to less than 2^24, which fp32 does. Where e8m0 scale 32 depths, they have the depths' powers.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence

import numpy as np

from tile_oracle.device.bounded_rows import Repeated, Rows, in_threads
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.operations.bounded_worker import (
    BoundedWorker,
    Integers,
    folded,
    half_of_depths,
    integers,
    launch_arguments,
    operand_a,
    operand_b,
    stored,
)
from tile_oracle.operations.scaled_gemm.problem import BLOCK, MX_BLOCK, ScaledGemmProblem
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

_LARGEST = {"fp8_e4m3": (15, 8, 8), "fp8_e5m2": (7, 15, 15), "fp4_e2m1": (12, 12, 4)}
"""dtype -> largest integers of A, B and the far B: full significands of A, 128 products of both below 2^14.
Those of e2m1 count halves, and the far B's neighbours are e2m1, too."""
_ROWS, _DEPTHS = (-4, 2), (-2, 2)
"""Exponents of the factors of rows and of depths: no value is subnormal or above 448."""
_HALVES = -1
_MX_DEPTHS = (-6, 6)
"""Exponents of the factors of blocks of depths, in the scales of A; in those of B they are negated."""
_SCALE, _FAR_SCALE = 3, 20
"""Largest exponent of a scale, and of one of the far operands. A block adds 0 or 1."""
_PERIODS = (251, 127, 61, 31, 13, 7, 3)
_SAMPLE = 64
_MOST_PRODUCTS = 1 << 34
"""Most products of a reference on the host, for a GPU."""
_MOST_VALUES = 1 << 22
"""Larger operands repeat rows."""
_AT_ONCE = 32
"""Rows of the result that are computed together."""

_Args = launch_arguments("a b scale_a scale_b out workspace", "M N K")


def _half(problem: ScaledGemmProblem) -> int:
    """Returns how many depths the far operands have twice."""
    return half_of_depths(problem.K, MX_BLOCK if problem.scale == "mx" else BLOCK)


def _powers_of_depths(problem: ScaledGemmProblem) -> Integers:
    """Returns the exponents of the depths in A; in B they are negated."""
    random = np.random.default_rng(zlib.crc32(problem.id.encode()))
    return folded(integers(random, _DEPTHS, problem.K), _half(problem))


def _powers(
    problem: ScaledGemmProblem, random: np.random.Generator, rows: int, sign: int
) -> tuple[int | Integers, ...]:
    """Returns the exponents of elements: of rows, and those of the depths times `sign`."""
    if problem.dtype == "fp4_e2m1":
        return (_HALVES,)
    return integers(random, _ROWS, (rows, 1)), sign * _powers_of_depths(problem)


def _powers_of_blocks(problem: ScaledGemmProblem) -> Integers:
    """Returns the exponents of MX blocks of depths in the scales of A; in those of B they are negated."""
    random = np.random.default_rng(zlib.crc32(problem.id.encode()))
    return integers(random, _MX_DEPTHS, problem.operand_shapes[2][1])


def _in_blocks(values: Array, size: int) -> Array:
    """Returns rows as (blocks of depths, rows, size); the last block ends in zeros."""
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % size)))
    return np.ascontiguousarray(padded.reshape(len(values), -1, size).swapaxes(0, 1))


class ScaledGemmInWorker(BoundedWorker):
    """See OnDevice, OnGpu and BoundedRows. The bounds of a value are equal: results are exact."""

    def first(
        self, problem: ScaledGemmProblem, random: np.random.Generator, rows: int, *, far: bool
    ) -> Array:
        """Returns rows of A: uniform integers, or far ones."""
        most, *_ = _LARGEST[problem.dtype]
        values = operand_a(random, most, (rows, problem.K), _half(problem) if far else 0)
        return stored(values, problem.operand_dtypes[0], *_powers(problem, random, rows, 1))

    def others(
        self, problem: ScaledGemmProblem, random: np.random.Generator, rows: int | None, *, far: bool
    ) -> list[Repeated]:
        """Returns B and the scales; far: sums of products cancel."""
        shape, of_a, of_b = problem.operand_shapes[1:-1]
        count, half = min(problem.N, (_MOST_VALUES // problem.K) | 1), _half(problem) if far else 0
        _, *largest_of_b = _LARGEST[problem.dtype]
        most = largest_of_b[far]
        values = operand_b(random, (2, most), (count, problem.K), half)
        b = stored(values, problem.operand_dtypes[1], *_powers(problem, random, count, -1))
        largest = _FAR_SCALE if far else _SCALE
        made = [Repeated(b, shape)]
        if problem.scale == "mx":
            of_depths = _powers_of_blocks(problem)
            for one, rows_of_one, sign in (
                (of_a, min(rows or problem.M, problem.M), 1),
                (of_b, problem.N, -1),
            ):
                exponents = integers(random, (-largest, largest), (rows_of_one, 1)) + sign * of_depths
                exponents += folded(integers(random, (0, 1), exponents.shape), half // MX_BLOCK)
                made.append(Repeated(encode(np.ldexp(np.float32(1), exponents), "e8m0"), one))
            return made
        for one, count, axis in ((of_a, min(rows or problem.M, of_a[-1]), 0), (of_b, of_b[0], -1)):
            exponents = integers(random, (-largest, largest), count)
            if problem.scale == "block":
                more = folded(integers(random, (0, 1), (count, one[axis])), half // BLOCK)
                exponents = exponents[:, None] + more
                if axis == 0:
                    exponents = exponents[np.arange(one[1]) % count].T
            made.append(Repeated(np.ldexp(np.float32(1), exponents), one))
        return made

    def bounds(
        self, problem: ScaledGemmProblem, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the exact values of some rows, rounded once, as both bounds."""
        of_a, of_b = problem.operand_dtypes
        scale_a, scale_b = (decode(one.whole(), problem.scale_dtype) for one in others[1:])
        if problem.scale == "mx":
            scale_a = scale_a[rows]
        elif problem.scale == "block":
            scale_a, scale_b = scale_a.T[rows], np.repeat(scale_b, BLOCK, axis=0)[: problem.N]
        else:
            scale_a, scale_b = scale_a[rows % len(scale_a), None], scale_b[:, None]
        size = problem.depth_of_scale
        a, b = (_in_blocks(decode(*one), size) for one in ((first, of_a), (others[0].values, of_b)))
        a *= scale_a.T[:, :, None]
        times = -(-problem.N // b.shape[1])
        scales = np.resize(np.broadcast_to(scale_b, (problem.N, len(b))), (times, b.shape[1], len(b)))
        exact = np.empty((len(first), problem.N), STORAGE[problem.result_dtype])

        def of_rows(begin: int) -> None:
            chosen = slice(begin, begin + _AT_ONCE)
            # (blocks, columns, rows): columns that B repeats have the same sums of each block.
            sums = b @ a[:, chosen].swapaxes(1, 2)
            whole = encode(scales.swapaxes(0, 1) @ sums.swapaxes(0, 1), problem.result_dtype)
            exact[chosen] = whole.transpose(2, 1, 0).reshape(whole.shape[2], -1)[:, : problem.N]

        in_threads(of_rows, range(0, len(first), _AT_ONCE))
        return exact, exact

    def period(self, problem: ScaledGemmProblem) -> int:
        """Returns a prime number of rows, so that a kernel that reads another row is seen."""
        return next((one for one in _PERIODS if one * problem.N * problem.K <= _MOST_PRODUCTS), 1)

    def sample(self, problem: ScaledGemmProblem) -> int:
        """Returns the number of rows whose values are computed for timed runs."""
        return max(1, min(_SAMPLE, _MOST_PRODUCTS // (problem.N * problem.K)))

    def cpu_arguments(
        self, problem: ScaledGemmProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """Returns the argument of `to_launch`."""
        addresses = (one.address for one in operands)
        return _Args(*addresses, out.address, None, *problem.gemm_shape)


WORKER = ScaledGemmInWorker()
