"""Attention in a worker process: operands, the errors that docs/verification.md derives, and calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from tile_oracle.device.bounded_rows import (
    CONFIDENCE,
    UNIT,
    Exact,
    Repeated,
    Rows,
    error_of_sum,
    host_threads,
    in_threads,
    in_turn,
    rounded_bounds,
)
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.operations.bounded_worker import BoundedWorker, launch_arguments
from tile_oracle.problem.number_formats import Array, decode, encode

_UNITS = {"bf16": 2.0**-8, "fp16": 2.0**-11}
"""Unit roundoff of the weights before the second product."""
_SUBNORMAL = {"bf16": 0.0, "fp16": 2.0**-25}
"""Absolute rounding error of weights that fp16 stores as subnormal numbers."""
_TINY = 2.0**-120
_OF_ERRORS = 1 + 2.0**-10
"""Covers the roundings of errors that are computed in fp32."""
_FAR = 4.0
_FAR_EXPONENTS = {"bf16": 20, "fp16": 3}
_SPOILT = slice(5, None, 8)
"""The queries that have a NaN."""
_PER_DISTANCE, _EXPONENTIAL, _RESCALING, _QUOTIENT = 3 * UNIT, 8 * UNIT, 64 * UNIT, 8 * UNIT
_LARGEST_DISTANCE = 128.0

_SAMPLE = 64
_MOST_FLOPS = 4e10
"""Of the reference of repeating operands on the host, in fp64, if there are smaller ones."""
_MOST_VALUES = 1 << 22
_PRIMES = (7, 5, 3, 2)
_ROWS_AT_ONCE = 128


def bounds_of_head(q: Exact, k: Exact, v: Exact, visible: Rows, dtype: str) -> tuple[Exact, Exact]:
    """Result and allowed error of some queries of one head.

    visible: how many keys each of them sees.
    """
    most = int(visible.max())
    k, v = k[:most], v[:most]
    scale = q.shape[1] ** -0.5
    scores = (q * scale) @ k.T
    if int(visible.min()) < most:
        scores[np.arange(most) >= visible[:, None]] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    terms = np.exp(scores)
    total = terms.sum(axis=1, keepdims=True)
    weights = terms / total
    value = weights @ v
    # What follows are errors, for which fp32 has digits enough.
    single, sizes = weights.astype(np.float32), np.abs(v).astype(np.float32)
    distances = np.minimum(-scores.astype(np.float32), np.float32(_LARGEST_DISTANCE))
    # A score's error, by the inequality of Cauchy and Schwarz for the sum of magnitudes.
    # Columns of Q and K that are multiplied by powers of two and their inverses get the same sizes first.
    sizes_q, sizes_k = (np.nanmean(np.abs(one), axis=0) + _TINY for one in (q, k))
    balance = np.sqrt(sizes_k / sizes_q)
    norms = np.linalg.norm(q * balance, axis=1, keepdims=True)
    norms = norms * np.nanmax(np.linalg.norm(k / balance, axis=1))
    of_score = (error_of_sum(q.shape[1]) + 4 * UNIT) * norms * scale
    relative = 2 * of_score + _EXPONENTIAL + _RESCALING + _QUOTIENT + error_of_sum(most)
    magnitudes = (single @ sizes).astype(np.float64)
    by_distance = single * distances
    slack = _PER_DISTANCE * (by_distance @ sizes) + relative * magnitudes
    of_weights = _PER_DISTANCE * by_distance.sum(axis=1, keepdims=True, dtype=np.float64) + relative
    slack += np.abs(value) * of_weights
    unit, subnormal = _UNITS[dtype], _SUBNORMAL[dtype]
    squares, squared_sizes = single * single, sizes * sizes
    rounding = np.minimum(CONFIDENCE * np.sqrt(squares @ squared_sizes), magnitudes)
    of_total = np.minimum(CONFIDENCE * np.sqrt(squares.sum(axis=1, keepdims=True)), 1.0)
    slack += unit * (rounding + of_total * np.abs(value))
    if subnormal:
        small = (terms < 2.0**-14).astype(np.float32)
        slack += CONFIDENCE * subnormal / total * np.sqrt(small @ squared_sizes)
    return value, _OF_ERRORS * slack + _TINY


_Args = launch_arguments(
    "q k v out workspace", "batch heads kv_heads seq_q seq_kv", ("scale", ctypes.c_float)
)


def _exponents(problem: AttentionProblem, number: int) -> npt.NDArray[np.int32]:
    """Of the columns of Q (number 0), inverse of K's, or of V (1)."""
    most = _FAR_EXPONENTS[problem.dtype]
    drawn = np.random.default_rng(97 + number).integers(-most, most + 1, problem.head_dim, dtype=np.int32)
    drawn[:2] = (-most, most)
    return drawn


class AttentionInWorker(BoundedWorker):
    """See OnDevice, OnGpu and BoundedRows. Row r of the result belongs to row r of Q."""

    def first(self, problem: AttentionProblem, random: np.random.Generator, rows: int, *, far: bool) -> Array:
        """Normal deviates; far: four times as large, so that few keys have most of the weight, with columns
        times powers of two, by which K's are divided. Some queries have a NaN."""
        values = random.standard_normal((rows, problem.head_dim), dtype=np.float32)
        if far:
            values = np.ldexp(values * np.float32(_FAR), _exponents(problem, 0))
            values[_SPOILT, random.integers(problem.head_dim)] = np.nan
        return encode(values, problem.dtype)

    def others(
        self, problem: AttentionProblem, random: np.random.Generator, rows: int | None, *, far: bool = False
    ) -> list[Repeated]:
        """K and V: normal deviates, whose heads repeat as `rows` demands. far: columns times powers of two, a
        NaN in the last key of the first head, unless all queries see it, and in the last head's first value,
        which all see: whether a weight of zero hides a NaN is left to a kernel."""
        shape = problem.operand_shapes[1]
        slice_rows = problem.group * problem.seq_q
        count = problem.batch * problem.kv_heads if rows is None else max(1, rows // slice_rows)
        # Large arrays repeat an odd number of rows.
        length = count * problem.seq_kv
        if rows is None:
            length = min(length, (_MOST_VALUES // problem.head_dim) | 1)
        made = [random.standard_normal((length, problem.head_dim), dtype=np.float32) for _ in range(2)]
        if far:
            k, v = made = [
                np.ldexp(one, power)
                for one, power in zip(made, (-_exponents(problem, 0), _exponents(problem, 1)), strict=True)
            ]
            if count > 1 or (problem.causal and problem.seq_q > 1):
                k[min(length, problem.seq_kv) - 1, problem.head_dim // 3] = np.nan
            if length == count * problem.seq_kv:
                v[-problem.seq_kv, problem.head_dim // 2] = np.nan
        return [Repeated(encode(one, problem.dtype), shape) for one in made]

    def bounds(
        self, problem: AttentionProblem, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the least and the largest right values of some rows."""
        queries = decode(first, problem.dtype).astype(np.float64)
        head, place = np.divmod(rows, problem.seq_q)
        slices = head // problem.heads * problem.kv_heads + head % problem.heads // problem.group
        visible = np.full(len(rows), problem.seq_kv)
        if problem.causal:
            visible = place + problem.seq_kv - problem.seq_q + 1
        value, slack = (np.empty(queries.shape) for _ in range(2))

        def of_part(part: Rows, k: Exact, v: Exact) -> None:
            value[part], slack[part] = bounds_of_head(queries[part], k, v, visible[part], problem.dtype)

        def of_slice(number: int) -> None:
            stored = (one.rows(number * problem.seq_kv, (number + 1) * problem.seq_kv) for one in others)
            k, v = (decode(one, problem.dtype).astype(np.float64) for one in stored)
            (chosen,) = np.nonzero(slices == number)
            parts = [chosen[i : i + _ROWS_AT_ONCE] for i in range(0, len(chosen), _ROWS_AT_ONCE)]
            within(partial(of_part, k=k, v=v), parts)

        numbers = np.unique(slices).tolist()
        few = len(numbers) < host_threads()
        over, within = (in_turn, in_threads) if few else (in_threads, in_turn)
        over(of_slice, numbers)
        return rounded_bounds(value, slack, problem.dtype)

    def period(self, problem: AttentionProblem) -> int:
        """Rows of a prime number of heads of K and V, or of one head of Q if these are too many."""
        of_slice = problem.group * problem.seq_q
        slices = problem.batch * problem.kv_heads
        cost = 8.0 * of_slice * problem.seq_kv * problem.head_dim
        for count in (*(one for one in _PRIMES if one <= slices), 1):
            if count * cost <= _MOST_FLOPS:
                return count * of_slice
        return problem.seq_q

    def sample(self, problem: AttentionProblem) -> int:
        """Returns the number of rows whose bounds are computed for timed runs."""
        return _SAMPLE

    def cpu_arguments(
        self, problem: AttentionProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """Returns the argument of `to_launch`."""
        sizes = (problem.batch, problem.heads, problem.kv_heads, problem.seq_q, problem.seq_kv)
        addresses = (one.address for one in operands)
        return _Args(*addresses, out.address, None, *sizes, problem.head_dim**-0.5)


WORKER = AttentionInWorker()
