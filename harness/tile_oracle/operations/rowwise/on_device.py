"""Operations on rows in a worker process: data, comparison, and how a kernel is called.

Results are no exact sums, so a value is right if it is the rounding of some number within a relative error of
the reference in fp64. docs/verification.md derives the errors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.device.guarded_memory import GuardedBuffer, holding
from tile_oracle.device.native_clock import Watch
from tile_oracle.device.stray_values import POISON_BYTE, unwritten
from tile_oracle.number_formats import STORAGE, Array, decode, encode
from tile_oracle.operations.rowwise.problem import RowProblem

UNIT = 2.0**-24
"""Unit roundoff of fp32, in which kernels compute."""
TINY = 2.0**-125
"""Absolute error of an intermediate result that is flushed to zero."""
_CONFIDENCE = 8.0
_ROUNDS, _WATCHED = 4, 16
Exact = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """value: in fp64. relative: bound of the error of a computation in fp32, before the last rounding."""

    value: Exact
    relative: Exact


Definition = Callable[[Sequence[Exact]], Reference]
"""Operands in fp64 -> the result, of the matrix's shape."""


def error_of_sum(terms: int) -> float:
    """Relative error of a sum of positive numbers in fp32, in any order.

    8 sqrt(n) u: roundings that are independent with mean zero exceed it with a probability below 1e-13
    (N. Higham, T. Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).
    """
    return float(_CONFIDENCE * np.sqrt(terms) * UNIT)


def mismatch(stored: Array, dtype: str, wanted: Reference) -> str | None:
    """How many values of a result are wrong, and the first; None when all are right."""
    missing = unwritten(stored)
    if missing:
        return missing
    low, high = bounds_of(wanted, dtype)
    out = decode(stored, dtype)
    wrong = ~((low <= out) & (out <= high))  # NaN is wrong
    if not wrong.any():
        return None
    row, column = np.argwhere(wrong)[0]
    at = (row, column)
    return (
        f"{wrong.sum():,} of {out.size:,} values wrong, at ({row}, {column}) got {out[at]:g}, "
        f"right is {low[at]:g} to {high[at]:g}"
    )


def bounds_of(wanted: Reference, dtype: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The least and the largest right values."""
    slack = np.abs(wanted.value) * wanted.relative + TINY
    return (
        _rounded(np.asarray(wanted.value - slack), dtype, -1),
        _rounded(np.asarray(wanted.value + slack), dtype, 1),
    )


def _rounded(values: Exact, dtype: str, sign: int) -> npt.NDArray[np.float32]:
    """Values as the nearest fp32 below (sign -1) or above (1), rounded to the data type as kernels round."""
    single = values.astype(np.float32)
    inside = sign * single.astype(np.float64) < sign * values
    outside = np.where(inside, np.nextafter(single, np.float32(sign * np.inf)), single)
    return decode(encode(outside, dtype), dtype)


class _Args(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("in", "weights", "out", "workspace")),
        *((name, ctypes.c_int64) for name in ("rows", "columns")),
    )


@dataclass(frozen=True)
class RowCheck:
    """One set of operands. See tile_oracle.device.cpu_data."""

    name: str
    where: str
    inputs: tuple[GuardedBuffer, ...]
    out: GuardedBuffer
    problem: RowProblem
    wanted: Reference
    kind: str = "full"

    @property
    def count(self) -> int:
        """Number of values compared: all."""
        return self.problem.height * self.problem.width

    def mismatch(self) -> str | None:
        """What is wrong with the result, or None."""
        return mismatch(_view(self.out, self.problem), self.problem.dtype, self.wanted)


class RowTimed:
    """Random operands, others for every batch of runs, at the same addresses."""

    def __init__(self, data: RowData) -> None:
        self._data, self.problem, self._round = data, data.problem, 0
        self._rounds = [data.operands(2 + number, 1.0, 0.0) for number in range(_ROUNDS)]
        self._wanted: list[Reference | None] = [None] * _ROUNDS
        self.inputs = tuple(holding(one, flush=False) for one in self._rounds[0])
        self.out = GuardedBuffer(self._rounds[0][0].nbytes, flush=False)
        size = STORAGE[self.problem.dtype].itemsize
        last = self.problem.height * self.problem.width - 1
        places = np.unique(np.linspace(0, last, _WATCHED).astype(np.int64))
        # The first byte of a finite result is never 0xFF: none is that large and negative.
        watched = (places * size + size - 1 + self.out.address).astype(np.uint64)
        self.watch = Watch(np.zeros(0, np.uint64), watched)

    def renew(self) -> None:
        """Takes the next operands and poisons the result."""
        self._round = (self._round + 1) % _ROUNDS
        for buffer, values in zip(self.inputs, self._rounds[self._round], strict=True):
            buffer.writable(values.dtype, values.shape)[:] = values
        self.out.fill(POISON_BYTE)

    def mismatch(self) -> str | None:
        """What is wrong with the last result, or None."""
        wanted = self._wanted[self._round]
        if wanted is None:
            wanted = self._wanted[self._round] = self._data.reference(self._rounds[self._round])
        return mismatch(_view(self.out, self.problem), self.problem.dtype, wanted)


class RowData:
    """See tile_oracle.device.cpu_data.CpuData."""

    def __init__(self, problem: RowProblem, seed: int, definition: Definition) -> None:
        self.problem, self._seed, self._definition = problem, seed, definition
        self.sets = [
            self._set("normal deviates", self.operands(0, 1.0, 0.0), flush=True),
            self._set("large values far from zero", self.operands(1, 8.0, 96.0), flush=False),
        ]
        self._timed: RowTimed | None = None

    def operands(self, number: int, scale: float, shift: float) -> list[Array]:
        """Operands of a set in their storage format: normal deviates x scale + shift, and weights near 1."""
        random = np.random.default_rng((self._seed, number))
        shapes = self.problem.operand_shapes[:-1]
        matrix = random.standard_normal(shapes[0], dtype=np.float32) * np.float32(scale) + np.float32(shift)
        weights = [random.standard_normal(one, dtype=np.float32) / 4 + 1 for one in shapes[1:]]
        return [encode(one, self.problem.dtype) for one in (matrix, *weights)]

    def reference(self, operands: Sequence[Array]) -> Reference:
        """The result by definition."""
        return self._definition([decode(one, self.problem.dtype).astype(np.float64) for one in operands])

    def _set(self, name: str, operands: list[Array], *, flush: bool) -> RowCheck:
        skew = 0 if flush else STORAGE[self.problem.dtype].itemsize
        inputs = tuple(holding(one, flush=flush, skew=skew) for one in operands)
        out = GuardedBuffer(operands[0].nbytes, flush=flush, skew=skew)
        where = "before a guard page" if flush else "skewed"
        return RowCheck(name, where, inputs, out, self.problem, self.reference(operands))

    @property
    def timed(self) -> RowTimed:
        """The operands that runs are timed with."""
        if self._timed is None:
            self._timed = RowTimed(self)
        return self._timed

    def inputs(self) -> list[tuple[int, int]]:
        """Address and size (bytes) of all operands that no run may change."""
        return [(buffer.address, buffer.size) for one in self.sets for buffer in one.inputs]


def _view(out: GuardedBuffer, problem: RowProblem) -> Any:
    return out.view(STORAGE[problem.dtype], (problem.height, problem.width))


def cpu_arguments(
    problem: RowProblem, operands: Sequence[GuardedBuffer], out: GuardedBuffer
) -> ctypes.Structure:
    """The argument of `to_launch`."""
    weights = operands[1].address if len(operands) > 1 else None
    return _Args(operands[0].address, weights, out.address, None, problem.height, problem.width)


def least_flops(problem: RowProblem) -> float:
    """Each element is used at least once."""
    return float(problem.height * problem.width)


def bytes_read(problem: RowProblem) -> int:
    """Bytes of matrix and weights."""
    return problem.bytes - STORAGE[problem.dtype].itemsize * problem.height * problem.width
