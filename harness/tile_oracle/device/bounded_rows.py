"""Operations whose results are right within bounds: what they say about operands and results.

Row r of a result depends on row r of the first operand and on the other operands.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from tile_oracle.problem.number_formats import Array, decode, encode

UNIT = 2.0**-24
"""Unit roundoff of fp32, in which kernels compute."""
CONFIDENCE = 8.0
_MOST_THREADS = 8
Rows = npt.NDArray[np.int64]
Exact = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Repeated:
    """An operand that repeats some values from its first element on.

    values: the first period or the whole operand, in the storage format. shape: of the operand.
    """

    values: Array
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of the operand's values."""
        return math.prod(self.shape)

    def whole(self) -> Array:
        """Returns all values. The operands of a GPU may be gigabytes."""
        return np.resize(self.values, self.shape)

    def rows(self, begin: int, end: int) -> Array:
        """Returns some rows along the last axis. Shape (end - begin, shape[-1])."""
        flat, width = self.values.reshape(-1), self.shape[-1]
        if len(flat) % width:
            return np.take(flat, np.arange(begin * width, end * width), mode="wrap").reshape(-1, width)
        return np.take(flat.reshape(-1, width), np.arange(begin, end), axis=0, mode="wrap")


class BoundedRows(Protocol):
    """All values are in their storage formats. Arrays of rows have two axes.

    far: of the second set, which has values of all sizes, and infinities and NaN where the operation defines
    what comes of them.
    """

    def first(self, problem: Any, random: np.random.Generator, rows: int, *, far: bool) -> Array:
        """Rows of the first operand."""

    def others(
        self, problem: Any, random: np.random.Generator, rows: int | None, *, far: bool
    ) -> list[Repeated]:
        """Make the other operands. rows: the period of the result's rows, if those of the first repeat."""

    def bounds(
        self, problem: Any, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the least and the largest right values of some rows of the result. first: these rows
        alone."""

    def period(self, problem: Any) -> int:
        """After how many rows the repeating operands of a GPU repeat."""

    def sample(self, problem: Any) -> int:
        """Returns the number of rows whose bounds are computed for timed runs on a GPU."""


def host_threads() -> int:
    """Returns with how many threads a worker computes right values before the first kernel runs."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(count: int) -> AbstractContextManager[object]:
    """Lets a product of matrices use at most so many threads."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=count, user_api="blas")
    return limited


def in_turn(work: Callable[[Any], None], parts: Sequence[Any]) -> None:
    """Does the work on each part."""
    list(map(work, parts))


def in_threads(work: Callable[[Any], None], parts: Sequence[Any]) -> None:
    """Does the work on each part, on several at once: NumPy computes without the interpreter's lock. A worker
    with one core starts no thread: between the runs of a kernel, the audit would take it for the kernel's."""
    cores = min(host_threads(), len(parts))
    with blas_threads(1), ThreadPoolExecutor(cores) if cores > 1 else nullcontext() as threads:
        list((map if threads is None else threads.map)(work, parts))


def rows_by_columns(problem: Any) -> bool:
    """Returns whether the rows of the first operand are columns in memory: each of its matrices lies
    transposed."""
    return bool(str(problem.as_row().get("layout", "r")).startswith("c"))


def transposed(problem: Any, rows: Array) -> Array:
    """Whole matrices of rows of the first operand in the order in which they lie: (..., depth, rows)."""
    shape = problem.operand_shapes[0]
    matrices = rows.reshape(*shape[:-2], shape[-1], shape[-2])
    return np.ascontiguousarray(matrices.swapaxes(-1, -2))


def error_of_sum(terms: int) -> float:
    """Relative error of a sum of positive numbers in fp32, in any order.

    8 sqrt(n) u: roundings that are independent with mean zero exceed it with a probability below 1e-13
    (N. Higham, T. Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).
    """
    return float(CONFIDENCE * np.sqrt(terms) * UNIT)


def rounded_bounds(value: Exact, slack: Exact, dtype: str) -> tuple[Array, Array]:
    """value - slack and value + slack, rounded to the data type as kernels round; in its storage format. A
    value that is infinite or NaN must be just that."""
    slack = np.where(np.isfinite(value), slack, 0.0)
    return encode(_outside(value - slack, -1), dtype), encode(_outside(value + slack, 1), dtype)


def _outside(values: Exact, sign: int) -> npt.NDArray[np.float32]:
    """Values as the nearest fp32 below (sign -1) or above (1)."""
    single = values.astype(np.float32)
    inside = single < values if sign > 0 else single > values
    bits = single.view(np.int32)
    bits += (bits >> 31 | 1) * (sign * inside.view(np.int8))  # the next number; np.nextafter is slow
    return single


def outside(stored: Array, low: Array, high: Array, dtype: str) -> str | None:
    """Returns how many values are not within their bounds, and the first; None when all are."""
    out, least, most = (decode(one, dtype).reshape(stored.shape) for one in (stored, low, high))
    wrong = ~((least <= out) & (out <= most) | np.isnan(least) & np.isnan(out))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{wrong.sum():,} of {out.size:,} values wrong, at ({', '.join(map(str, at))}) got {out[at]:g}, "
        f"right is {least[at]:g} to {most[at]:g}"
    )
