"""Products of experts in a worker process: operands whose sums are exact, results, and calls.

docs/fused_moe.md derives the sizes. Operands are integers times a power of two for each row, so small that
every sum of products is an integer below 2^24, which fp32 holds exactly in whatever order it is added up.
Those of 128 products of fp8 are below 2^14, which Hopper's fp8 instructions hold exactly.
"""

from __future__ import annotations

import ctypes
import math
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
from tile_oracle.operations.fused_moe.problem import BLOCKS, SCALED, FusedMoeProblem
from tile_oracle.operations.fused_moe.routing import routing_array, shuffled
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

_LARGEST = {"bf16": (255, 4), "fp8_e4m3": (15, 8)}
"""Data type -> largest integers of A and B: full significands of A, and with `problem.MOST_EXTENT` products
sums below 2^24, with the scales of fp8, too."""
_POWERS, _FACTORS = (-4, 2), (-3, 3)
"""Exponents of the factors of rows of A and B, and of weights of pairs and scales. Those of a depth that has
scales add 0 or 1, for all experts the same."""
_WHOLE = (1, 6)
"""Exponents of scales of tensors and rows: never 0, so that a missing one is seen."""
_MOST_VALUES = 1 << 21
"""Larger weights of experts repeat rows, if more than one of each expert are left; no two experts have the
same."""
_PERIOD, _SAMPLE = 251, 64
"""After how many tokens, a prime number, those of a GPU repeat, and how many are computed for timed runs."""

_Args = launch_arguments(
    "a b routing weights scale_a scale_b out workspace",
    "pairs pairs_of_row N K",
    ("lists", ctypes.c_int64 * 3 * len(BLOCKS)),
)


def _half(problem: FusedMoeProblem) -> int:
    """Returns how many depths the far operands have twice."""
    return half_of_depths(problem.K, SCALED if problem.scaled else 1)


def _powers_of_scales(
    problem: FusedMoeProblem, random: np.random.Generator, tokens: int, half: int
) -> list[Integers]:
    """Returns the exponents of the scales of A, for some tokens, and of B, by rows. Of blocks: one of a row,
    and 0 or 1 of a depth, which all rows of B share; the first two differ, and the first `half` repeat."""
    of_a, shape, _ = problem.operand_shapes[-3:]
    if problem.scale != "block":
        return [integers(random, _WHOLE, one) for one in ((min(tokens, of_a[0]), *of_a[1:]), shape)]
    *of_b, depth = shape
    made = []
    for rows, different in ((tokens * problem.rows_of_a,) * 2, (math.prod(of_b), 1)):
        of_depths = integers(random, (0, 1), (different, depth))
        of_depths[:, 1:2] = 1 - of_depths[:, :1][:, : depth - 1]
        made.append(integers(random, _FACTORS, (rows, 1)) + folded(of_depths, half))
    return made


def _different_rows(problem: FusedMoeProblem) -> int:
    """Returns how many rows of B are made: all, or a number that has no divisor in common with N, so that
    rows of different experts differ."""
    rows = max(_MOST_VALUES // problem.K, problem.experts + 1)
    while math.gcd(rows, problem.N) > 1:
        rows += 1
    return min(rows, problem.experts * problem.N)


class FusedMoeInWorker(BoundedWorker):
    """See OnDevice, OnGpu and BoundedRows. A row is a token's; its bounds are equal: results are exact."""

    def first(self, problem: FusedMoeProblem, random: np.random.Generator, rows: int, *, far: bool) -> Array:
        """Returns A: uniform integers, or far ones."""
        shape, (most, _) = (rows * problem.rows_of_a, problem.K), _LARGEST[problem.dtype]
        values = operand_a(random, most, shape, _half(problem) if far else 0)
        return stored(values, problem.dtype, integers(random, _POWERS, (shape[0], 1))).reshape(rows, -1)

    def others(
        self, problem: FusedMoeProblem, random: np.random.Generator, rows: int | None, *, far: bool
    ) -> list[Repeated]:
        """Returns B, the routing, the weights of pairs, and scales; far: sums of products cancel."""
        _, b, routing, *more, _ = problem.operand_shapes
        shape, period = (_different_rows(problem), problem.K), min(rows or problem.tokens, problem.tokens)
        (_, most), half = _LARGEST[problem.dtype], _half(problem) if far else 0
        values = operand_b(random, (2, most), shape, half)
        array = routing_array(problem, shuffled(problem, random, period))
        in_b = stored(values, problem.dtype, integers(random, _POWERS, (shape[0], 1)))
        made = [Repeated(in_b, b), Repeated(array, routing)]
        powers = []
        if problem.product == "down":
            powers.append(integers(random, _FACTORS, (period, problem.topk)))
        if problem.scaled:
            powers += _powers_of_scales(problem, random, period, half // SCALED)
        numbers = (np.ldexp(np.float32(1), one) for one in powers)
        return made + [Repeated(*one) for one in zip(numbers, more, strict=True)]

    def bounds(
        self, problem: FusedMoeProblem, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the exact values of some tokens' rows, rounded once, as both bounds."""
        b, routing, *more = others
        different = _different_rows(problem)
        a = decode(first, problem.dtype).reshape(-1, problem.K)
        of_b = decode(b.values.reshape(-1, problem.K)[:different], problem.dtype)
        of_columns = np.ones((problem.experts, 1), np.float32)
        if problem.scaled:
            of_a, scales = (one.whole() for one in more[-2:])
            of_rows = of_a if problem.scale == "tensor" else of_a[rows].reshape(len(a), -1)
            of_columns = scales.reshape(problem.experts, -1)
            if problem.scale == "block":
                # The depths' part of B's scales is the same for all its rows: it goes to A.
                of_depths = of_rows * (scales[0, 0] / scales[0, 0, 0])
                of_rows = np.repeat(of_depths, SCALED, axis=1)[:, : problem.K]
                of_columns = np.repeat(scales[:, :, 0], SCALED, axis=1)[:, : problem.N]
            a = a * of_rows
        chosen = routing.values.reshape(-1)[: problem.pairs].reshape(-1, problem.topk)[rows]
        weighted = problem.product == "down"
        factors = more[0].whole()[rows, :, None] if weighted else np.ones((*chosen.shape, 1), np.float32)
        exact = np.empty((*chosen.shape, problem.N), STORAGE[problem.result_dtype])
        # Where experts share rows of B, fewer products are all rows of A by all different ones.
        shared = problem.rows_of_a * different <= problem.topk * problem.N
        products = a @ of_b.T if shared else None

        def of_expert(expert: int) -> None:
            token, place = np.nonzero(chosen == expert)
            columns = (expert * problem.N + np.arange(problem.N)) % different
            row = token * problem.rows_of_a + place % problem.rows_of_a
            sums = a[row] @ of_b[columns].T if products is None else products[row][:, columns]
            sums = sums * factors[token, place] * of_columns[expert]
            exact[token, place] = encode(sums, problem.result_dtype)

        in_threads(of_expert, np.unique(chosen).tolist())
        flat = exact.reshape(len(rows), -1)
        return flat, flat

    def period(self, problem: FusedMoeProblem) -> int:
        """Returns a prime number of tokens, so that a kernel that reads another one is seen."""
        return _PERIOD

    def sample(self, problem: FusedMoeProblem) -> int:
        """Returns the number of tokens whose values are computed for timed runs."""
        return _SAMPLE

    def cpu_arguments(
        self, problem: FusedMoeProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """Returns the argument of `to_launch`."""
        a, b, routing, *more = (one.address for one in operands)
        weights = more.pop(0) if problem.product == "down" else None
        numbers = (problem.pairs, problem.topk // problem.rows_of_a, problem.N, problem.K)
        args = _Args(a, b, routing, weights, *(more or (None, None)), out.address, None, *numbers)
        for place, size in enumerate(BLOCKS):
            args.lists[place][:] = problem.lists[size]
        return args


WORKER = FusedMoeInWorker()
