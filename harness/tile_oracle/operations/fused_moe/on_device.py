"""Products of experts in a worker process: operands whose sums are exact, results, and calls.

docs/fused_moe.md derives the sizes. Operands are integers times a power of two for each row, so small that
every sum of products is an integer below 2^24, which fp32 holds exactly in whatever order it is added up.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from tile_oracle.device.bounded_rows import Repeated, Rows, in_threads
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.operations.bounded_worker import BoundedWorker, integers, launch_arguments, signs, stored
from tile_oracle.operations.fused_moe.problem import BLOCKS, FusedMoeProblem
from tile_oracle.operations.fused_moe.routing import routing_array, shuffled
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

_MOST_A, _MOST_B = 255, 4
"""Largest integers: full significands of A, and with `problem.MOST_EXTENT` products sums below 2^24."""
_POWERS, _WEIGHTS = (-4, 2), (-3, 3)
"""Exponents of the factors of rows of A and B, and of the weights of pairs."""
_MOST_VALUES = 1 << 23
"""Larger weights of experts repeat rows; no two experts have the same."""
_PERIOD, _SAMPLE = 251, 64
"""After how many tokens, a prime number, those of a GPU repeat, and how many are computed for timed runs."""

_Args = launch_arguments(
    "a b routing weights out workspace", "pairs pairs_of_row N K", ("lists", ctypes.c_int64 * 3 * len(BLOCKS))
)


def _different_rows(problem: FusedMoeProblem) -> int:
    """Returns how many rows of B are made: all, or a number that has no divisor in common with N, so that
    rows of different experts differ."""
    rows = problem.experts * problem.N
    if rows * problem.K > _MOST_VALUES:
        rows = _MOST_VALUES // problem.K
        while math.gcd(rows, problem.N) > 1:
            rows -= 1
    return rows


class FusedMoeInWorker(BoundedWorker):
    """See OnDevice, OnGpu and BoundedRows. A row is a token's; its bounds are equal: results are exact."""

    def first(self, problem: FusedMoeProblem, random: np.random.Generator, rows: int, *, far: bool) -> Array:
        """Returns a: uniform integers; far: a row's have one sign and are large, and its second half
        repeats."""
        shape = (rows * problem.rows_of_a, problem.K)
        if far:
            half = problem.K // 2
            values = integers(random, (_MOST_A // 2 + 1, _MOST_A), shape) * signs(random, shape[0])
            values[:, half : 2 * half] = values[:, :half]
        else:
            values = integers(random, (-_MOST_A, _MOST_A), shape)
        return stored(values, problem.dtype, integers(random, _POWERS, (shape[0], 1))).reshape(rows, -1)

    def others(
        self, problem: FusedMoeProblem, random: np.random.Generator, rows: int | None, *, far: bool
    ) -> list[Repeated]:
        """B, the routing, and the weights of pairs; far: B's second half is that of the first with the
        opposite sign up to -1, 0 or 1, so that sums cancel."""
        _, b, routing, *weights, _ = problem.operand_shapes
        shape, period = (_different_rows(problem), problem.K), min(rows or problem.tokens, problem.tokens)
        values = integers(random, (-_MOST_B, _MOST_B), shape)
        if far:
            half = problem.K // 2
            of_row = signs(random, shape[0])
            values[:, :half] = integers(random, (2, _MOST_B - 1), (shape[0], half)) * of_row
            values[:, half : 2 * half] = integers(random, (-1, 1), (shape[0], half)) - values[:, :half]
        array = routing_array(problem, shuffled(problem, random, period))
        in_b = stored(values, problem.dtype, integers(random, _POWERS, (shape[0], 1)))
        made = [Repeated(in_b, b), Repeated(array, routing)]
        for one in weights:
            powers = integers(random, _WEIGHTS, (period, problem.topk))
            made.append(Repeated(np.ldexp(np.float32(1), powers), one))
        return made

    def bounds(
        self, problem: FusedMoeProblem, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the exact values of some tokens' rows, rounded once, as both bounds."""
        b, routing, *weights = others
        different = _different_rows(problem)
        a = decode(first, problem.dtype).reshape(-1, problem.K)
        of_b = decode(b.values.reshape(-1, problem.K)[:different], problem.dtype)
        chosen = routing.values.reshape(-1)[: problem.pairs].reshape(-1, problem.topk)[rows]
        factors = weights[0].whole()[rows, :, None] if weights else np.ones((*chosen.shape, 1), np.float32)
        exact = np.empty((*chosen.shape, problem.N), STORAGE[problem.result_dtype])
        # Where experts share rows of B, fewer products are all rows of A by all different ones.
        shared = problem.rows_of_a * different <= problem.topk * problem.N
        products = a @ of_b.T if shared else None

        def of_expert(expert: int) -> None:
            token, place = np.nonzero(chosen == expert)
            columns = (expert * problem.N + np.arange(problem.N)) % different
            row = token * problem.rows_of_a + place % problem.rows_of_a
            sums = a[row] @ of_b[columns].T if products is None else products[row][:, columns]
            exact[token, place] = encode(sums * factors[token, place], problem.result_dtype)

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
        a, b, routing, *weights = (one.address for one in operands)
        numbers = (problem.pairs, problem.topk // problem.rows_of_a, problem.N, problem.K)
        args = _Args(a, b, routing, weights[0] if weights else None, out.address, None, *numbers)
        for place, size in enumerate(BLOCKS):
            args.lists[place][:] = problem.lists[size]
        return args


WORKER = FusedMoeInWorker()
