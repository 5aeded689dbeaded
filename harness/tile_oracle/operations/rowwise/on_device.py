"""Operations on rows in a worker process: data, comparison, and how a kernel is called.

Results are no exact sums, so a value is right if it is the rounding of some number within a relative error of
the reference in fp64. docs/verification.md derives the errors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tile_oracle.device.bounded_rows import (
    UNIT,
    Exact,
    Repeated,
    Rows,
    error_of_sum,
    in_threads,
    outside,
    rounded_bounds,
)
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.stray_values import unwritten
from tile_oracle.operations.bounded_worker import BoundedWorker, launch_arguments
from tile_oracle.operations.rowwise.problem import RowProblem
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

__all__ = ["UNIT", "Definition", "Exact", "Reference", "RowsInWorker", "error_of_sum"]

TINY = 2.0**-125
"""Absolute error of an intermediate result that is flushed to zero."""
_PERIOD = 251
"""Rows of the repeating operands: a prime, so that a kernel that reads another row is seen."""
_SAMPLE = 64
_SPOILT = slice(3, None, 8)
"""The rows that have infinities or NaN."""
_MOST_VALUES = 1 << 22
"""Most values of a reference on the host, for a GPU."""
_AT_ONCE = 1 << 16
"""Values of the result that are computed together."""


@dataclass(frozen=True)
class Reference:
    """value: in fp64. relative: bound of the error of a computation in fp32, before the last rounding."""

    value: Exact
    relative: Exact


Definition = Callable[[Sequence[Exact]], Reference]
"""Operands in fp64 -> the result, of the matrix's shape."""


def mismatch(stored: Array, dtype: str, wanted: Reference) -> str | None:
    """Returns how many values of a result are wrong, and the first; None when all are right."""
    return unwritten(stored) or outside(stored, *_bounds(wanted, dtype), dtype)


def _bounds(wanted: Reference, dtype: str) -> tuple[Array, Array]:
    return rounded_bounds(wanted.value, np.abs(wanted.value) * wanted.relative + TINY, dtype)


_Args = launch_arguments("in weights out workspace", "rows columns")


class RowsInWorker(BoundedWorker):
    """The part of an operation on rows. See OnDevice, OnGpu and BoundedRows."""

    def __init__(
        self,
        definition: Definition,
        far_exponents: Mapping[str, int] | None = None,
        spoilt: Sequence[float] = (),
    ) -> None:
        """`far_exponents`: far rows are multiplied by powers of two up to this one, and down to its inverse,
        for each dtype; for operations whose errors allow it. `spoilt`: infinities and NaN that may be among
        a row's elements, since the definition says what comes of them, whatever a kernel computes first."""
        self._definition, self._far_exponents = definition, far_exponents or {}
        self._spoilt_values = spoilt

    def first(self, problem: RowProblem, random: np.random.Generator, rows: int, *, far: bool) -> Array:
        """Normal deviates; far: eight times as large, around 96, times a power of two for each row; some rows
        have elements that are not finite."""
        scale, shift = (8.0, 96.0) if far else (1.0, 0.0)
        values = random.standard_normal((rows, problem.width), dtype=np.float32)
        values = values * np.float32(scale) + np.float32(shift)
        most = self._far_exponents.get(problem.dtype, 0) if far else 0
        if most:
            powers = random.integers(-most, most + 1, (rows, 1), dtype=np.int32)
            powers[:2, 0] = (-most, most)[:rows]
            values = np.ldexp(values, powers)
        if far and self._spoilt_values and problem.width > 1:
            for number, row in enumerate(values[_SPOILT]):
                single, kind = divmod(number, len(self._spoilt_values))
                begin = random.integers(1, problem.width)  # never the first: softmax of nothing is undefined
                row[begin : begin + 1 if single % 2 else None] = self._spoilt_values[kind]
        return encode(values, problem.dtype)

    def others(
        self, problem: RowProblem, random: np.random.Generator, rows: int | None, *, far: bool = False
    ) -> list[Repeated]:
        """Weights near 1, if there are any; far: one is NaN."""
        made = []
        for one in problem.operand_shapes[1:-1]:
            values = random.standard_normal(one, dtype=np.float32) / 4 + 1
            if far and self._spoilt_values and problem.width > 1:
                values.reshape(-1)[problem.width // 2] = np.nan
            made.append(Repeated(encode(values, problem.dtype), one))
        return made

    def bounds(
        self, problem: RowProblem, first: Array, others: Sequence[Repeated], rows: Rows
    ) -> tuple[Array, Array]:
        """Returns the least and the largest right values of some rows."""
        weights = [decode(one.whole(), problem.dtype).astype(np.float64) for one in others]
        low, high = (np.empty(first.shape, STORAGE[problem.dtype]) for _ in range(2))
        step = max(1, _AT_ONCE // problem.width)

        def of_rows(begin: int) -> None:
            chosen = slice(begin, begin + step)
            operands = [decode(first[chosen], problem.dtype).astype(np.float64), *weights]
            with np.errstate(invalid="ignore"):  # infinities and NaN
                low[chosen], high[chosen] = _bounds(self._definition(operands), problem.dtype)

        in_threads(of_rows, range(0, len(first), step))
        return low, high

    def period(self, problem: RowProblem) -> int:
        """After how many rows the repeating operands repeat."""
        return max(1, min(_PERIOD, _MOST_VALUES // problem.width))

    def sample(self, problem: RowProblem) -> int:
        """Returns the number of rows whose bounds are computed for timed runs."""
        return max(1, min(_SAMPLE, _MOST_VALUES // problem.width))

    def cpu_arguments(
        self, problem: RowProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """Returns the argument of `to_launch`."""
        weights = operands[1].address if len(operands) > 1 else None
        return _Args(operands[0].address, weights, out.address, None, problem.height, problem.width)
