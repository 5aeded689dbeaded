"""Attention over paged caches in a worker process: operands with known scores, results, and calls.

docs/paged_attention.md derives the sizes. A cached key is of one of four classes, a query gives each class a
level, and all other products of the two cancel exactly, so that a score is the level of the key's class.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from tile_oracle.device.bounded_rows import (
    CONFIDENCE,
    UNIT,
    Exact,
    Repeated,
    Rows,
    error_of_sum,
    in_threads,
    rounded_bounds,
)
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.operations.bounded_worker import BoundedWorker, Integers, integers, launch_arguments
from tile_oracle.operations.paged_attention.problem import LATENT, PagedAttentionProblem
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

_CLASSES, _OF_CLASS, _HIDDEN = 4, 8, -512
"""Classes of keys; a key's value in its class's column; the level of a class that has no weight."""
_NOISE_Q, _NOISE_K, _VALUES = (-4, 4), (-8, 8), (-8, 8)
"""Ends of the integers in other columns, and of values."""
_BASES, _LOWER, _POWERS = (0, 4), (0, 3), (-2, 2)
"""Levels; what the second set subtracts from a class's; exponents of its factors of columns of values."""
_SPOILT = slice(5, None, 16)
"""The rows of queries of the second set that have a NaN."""
_WEIGHT = 2.0**-8
"""Unit roundoff of weights that are not 0 or 1, before the second product; also for those who truncate."""
_ROUNDINGS = 64 * UNIT
"""Of the exponential, the sums' rescaling, the merge of parts, and the quotient."""
_LEAST, _TINY = 2.0**-140, 2.0**-120
"""fp32 has no smaller weights; an error that is always allowed."""
_MOST_VALUES, _MOST_READ = 1 << 23, 1 << 27
"""Values of a cache that are made, of larger ones pages repeat; values of V for the bounds of timed runs."""
_SAMPLE, _AT_ONCE, _LONG = 64, 128, 64
"""Rows with bounds in timed runs; rows whose bounds are computed together; keys of a long run."""

_Args = launch_arguments(
    "q cache lists sinks out workspace",
    "batch heads kv_heads page_size window keys_at table_at table_width",
    ("scale", ctypes.c_float),
)


def _columns(head_dim: int) -> list[int]:
    """Returns the columns of the classes, two pairs of columns that are half a head apart."""
    half = head_dim // 2
    return [head_dim // 8, half - 2, half + head_dim // 8, 2 * half - 2]


def _cache(problem: PagedAttentionProblem, random: np.random.Generator, *, far: bool) -> Repeated:
    p = problem
    shape = p.operand_shapes[1]
    pages = min(p.pages, max(1, _MOST_VALUES // shape[1]))
    rows = pages * p.page_size * p.kv_heads
    noise = integers(random, _NOISE_K, (rows, p.head_dim // 2))
    k = np.concatenate((noise, noise), axis=1)
    classes = integers(random, (0, _CLASSES - 1), rows)
    k[:, _columns(p.head_dim)] = _OF_CLASS * np.eye(_CLASSES, dtype=np.int32)[classes]
    values = k.reshape(pages, -1).astype(np.float32)
    if p.head_dim != LATENT:
        v = integers(random, _VALUES, k.shape).astype(np.float32)
        if far:
            v *= np.ldexp(np.float32(1), integers(random, _POWERS, p.head_dim))
        values = np.concatenate((values, v.reshape(pages, -1)), axis=1)
    return Repeated(encode(values, p.kv_dtype), shape)


def _lists(problem: PagedAttentionProblem, random: np.random.Generator, *, far: bool) -> Repeated:
    """Queries' ends, keys' numbers and the page table. Pages lie in random order; those that the table has
    beyond a sequence's last are others'. far: sequences share the pages of two."""
    p = problem
    keys_at, table_at, length = p.places
    made = np.zeros(length, np.int32)
    queries, keys = np.array(p.lengths, np.int32).T
    made[1 : p.batch + 1], made[keys_at : keys_at + p.batch] = np.cumsum(queries), keys
    if far:
        different = [random.permutation(p.pages)[: p.table_width] for _ in range(min(p.batch, 2))]
        table: Integers = np.resize(different, (p.batch, p.table_width)).astype(np.int32)
    else:
        table = integers(random, (0, p.pages - 1), (p.batch, p.table_width))
        table[np.arange(p.table_width) < -(-keys // p.page_size)[:, None]] = random.permutation(p.pages)
    made[table_at : table_at + table.size] = table.reshape(-1)
    return Repeated(made, (length,))


class _Visible:
    """What rows of the result see of the keys and values of one head in one row of the page table."""

    def __init__(
        self, classes: Integers, v: Array, at: tuple[Array, Array, int], first: Rows, end: Rows
    ) -> None:
        """classes: of the keys from the least `first` on, in their order. at: where `v` has their values.
        first, end: of each row."""
        ends = np.unique((first, end))
        segment = np.repeat(np.arange(len(ends) - 1), np.diff(ends)) * _CLASSES + classes
        order = np.argsort(segment, kind="stable")
        counts = np.bincount(segment, minlength=len(ends) * _CLASSES)
        there = counts > 0
        values = v[at[0][order], at[1][order], at[2]]
        sums = np.zeros((len(counts), values.shape[1]), np.float32)  # exact: of integers below 2^24
        starts = (np.cumsum(counts) - counts)[there]
        if len(order) > _LONG * len(starts):  # several times as fast
            sums[there] = [part.sum(axis=0) for part in np.split(values, starts[1:])]
        else:
            sums[there] = np.add.reduceat(values, starts, axis=0)
        self._sums = _before(sums.reshape(-1, _CLASSES, values.shape[1]))
        self._counts = _before(counts.reshape(-1, _CLASSES))
        self._first, self._end = (np.searchsorted(ends, one) for one in (first, end))
        self._largest = np.abs(values).max(axis=0)

    def bounds(self, rows: slice, scores: Exact, sinks: Exact) -> tuple[Exact, Exact]:
        """Returns results and allowed errors of rows. scores: of each row and class. sinks: of each row."""
        first, end = self._first[rows], self._end[rows]
        counts = self._counts[end] - self._counts[first]
        visible = np.where(counts > 0, scores, -np.inf)
        most = np.maximum(visible.max(axis=1), sinks)[:, None]
        weights = np.exp(visible - most)
        weights[weights < _LEAST] = 0.0
        total = (weights * counts).sum(axis=1, keepdims=True) + np.exp(sinks[:, None] - most)
        sums = self._sums[end] - self._sums[first]
        value = np.matmul((weights / total)[:, None], sums)[:, 0]
        # Sums over any of the keys, whose values have random signs.
        deviation = np.sqrt((weights**2 * counts).sum(axis=1, keepdims=True)) / total
        rounded = ((weights > 0) & (weights < 1)).any(axis=1, keepdims=True)
        of_sums = error_of_sum(int(counts.sum(axis=1).max()))
        relative = _ROUNDINGS + 3 * UNIT * np.abs(most) + of_sums + _WEIGHT * rounded
        return value, relative * (CONFIDENCE * deviation * self._largest + np.abs(value)) + _TINY


def _before(values: Array) -> Array:
    """Returns the sums of all before each."""
    sums: Array = np.cumsum(values, axis=0) - values
    return sums


class PagedAttentionInWorker(BoundedWorker):
    """See OnDevice, OnGpu and BoundedRows. A row is a head of a query."""

    def first(
        self, problem: PagedAttentionProblem, random: np.random.Generator, rows: int, *, far: bool
    ) -> Array:
        """Queries. Visible classes have one level; far: several. Some rows of that set have a NaN."""
        noise = integers(random, _NOISE_Q, (rows, problem.head_dim // 2))
        values = np.concatenate((noise, -noise), axis=1).astype(np.float32)
        levels = np.repeat(random.choice(_BASES, (rows, 1)), _CLASSES, axis=1)
        if far:
            levels -= integers(random, _LOWER, levels.shape)
        hidden = random.random(levels.shape) < 0.25
        hidden[np.arange(rows), integers(random, (0, _CLASSES - 1), rows)] = False
        values[:, _columns(problem.head_dim)] = np.where(hidden, _HIDDEN, levels)
        if far:
            values[_SPOILT, random.integers(problem.head_dim)] = np.nan
        return encode(values, problem.dtype)

    def others(
        self, problem: PagedAttentionProblem, random: np.random.Generator, rows: int | None, *, far: bool
    ) -> list[Repeated]:
        """The cache, the lists, and sinks: those of the first set are below the visible levels, those of the
        second have about the weight of all keys."""
        sinks = np.full(problem.heads, -np.inf, np.float32)
        if problem.sinks:
            keys = min(problem.window or problem.seq_kv, problem.seq_kv)
            sinks[:] = random.random(problem.heads) * 2 + (math.log(keys) - 1 if far else -2)
        lists = _lists(problem, random, far=far)
        return [_cache(problem, random, far=far), lists, Repeated(sinks, sinks.shape)]

    def bounds(
        self, problem: PagedAttentionProblem, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the least and the largest right values of some rows."""
        p = problem
        cache, lists, sinks = others
        pages = decode(cache.values.reshape(-1, cache.shape[1]), p.kv_dtype)
        keys_at, table_at, _ = p.places
        table = lists.values[table_at : table_at + p.batch * p.table_width].reshape(p.batch, -1)
        queries, columns = decode(first, p.dtype), _columns(p.head_dim)
        levels = queries[:, columns].astype(np.float64)
        spoilt = np.isnan(queries.sum(axis=1))
        token, head = np.divmod(rows, p.heads)
        begins = lists.values[: p.batch + 1]
        sequence = np.searchsorted(begins, token, side="right") - 1
        end = lists.values[keys_at + sequence] - (begins[sequence + 1] - token) + 1
        least = np.maximum(0, end - p.window) if p.window else np.zeros_like(end)
        known: dict[bytes, int] = {}
        like = np.array([known.setdefault(row.tobytes(), place) for place, row in enumerate(table)])
        groups = like[sequence] * p.kv_heads + head // p.group
        low, high = (np.empty((len(rows), p.head_dim_v), STORAGE[p.result_dtype]) for _ in range(2))
        k, v = _halves(p, pages)
        classes = k[..., columns].argmax(axis=-1)

        def of_group(number: int) -> None:
            (part,) = np.nonzero(groups == number)
            keys = np.arange(least[part].min(), end[part].max())
            page = table[number // p.kv_heads][keys // p.page_size] % len(pages)
            at = page, keys % p.page_size, number % p.kv_heads
            seen = _Visible(classes[at], v, at, least[part], end[part])
            for begin in range(0, len(part), _AT_ONCE):
                chosen = slice(begin, begin + _AT_ONCE)
                some = part[chosen]
                scores = levels[some] * (_OF_CLASS * p.scale)
                value, slack = seen.bounds(chosen, scores, sinks.values[head[some]].astype(np.float64))
                value[spoilt[some]] = np.nan
                low[some], high[some] = rounded_bounds(value, slack, p.result_dtype)

        in_threads(of_group, np.unique(groups).tolist())
        return low, high

    def period(self, problem: PagedAttentionProblem) -> int:
        """Returns the number of all rows, which do not repeat."""
        return problem.tokens * problem.heads

    def sample(self, problem: PagedAttentionProblem) -> int:
        """Returns the number of rows whose bounds are computed for timed runs: of all heads."""
        rows = problem.tokens * problem.heads
        of_row = problem.read_keys // problem.batch * problem.head_dim_v
        most = min(rows, _SAMPLE, max(8, _MOST_READ // of_row))
        return next((n for n in range(most, 0, -1) if math.gcd(rows // n, problem.heads) == 1), most)

    def cpu_arguments(
        self, problem: PagedAttentionProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """Returns the argument of `to_launch`."""
        p = problem
        numbers = (p.batch, p.heads, p.kv_heads, p.page_size, p.window, *p.places[:2], p.table_width)
        return _Args(*(one.address for one in operands), out.address, None, *numbers, p.scale)


def _halves(problem: PagedAttentionProblem, pages: Array) -> tuple[Array, Array]:
    """Returns keys and values, each (pages, page_size, kv_heads, size of a head)."""
    p = problem
    parts = pages.reshape(len(pages), -1, p.page_size, p.kv_heads, p.head_dim)
    return parts[:, 0], parts[:, -1, ..., : p.head_dim_v]


WORKER = PagedAttentionInWorker()
