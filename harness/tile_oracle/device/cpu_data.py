"""One problem's data on the CPU: operands for checks and timing, and the expected results.

The data of the runs differ in their placement in memory:

check, dense    directly before a guard page: aligned to the element, or more by chance
check, others   one element beyond a 64-byte boundary
timing          at a 64-byte boundary
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.ma  # np.unique imports it in its first call: a kernel may have changed the root by then
import numpy.typing as npt

from tile_oracle.device.check_data import Integers, Pattern, dense, mantissa, operands
from tile_oracle.device.factors import Exponents, exponents, factor_axes
from tile_oracle.device.guarded_memory import GuardedBuffer, holding
from tile_oracle.device.not_finite import NOT_FINITE, not_finite, spoilt
from tile_oracle.device.reference import expected_output
from tile_oracle.device.stray_values import nan_count, poison, unwritten
from tile_oracle.device.turns import STATES, OperandTurns, sign_turning, signs
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, Array, decode, encode

FLUSH = "before a guard page"
SKEWED = "one element beyond a 64-byte boundary"


@dataclass(frozen=True)
class CheckSet:
    """One set of data that every kernel is checked with. name: of the pattern of values.

    where: their placement in memory. mismatch: how the content of `out` differs from the expected result, or
    None. count: number of values compared.
    """

    name: str
    where: str
    inputs: Sequence[GuardedBuffer]
    out: GuardedBuffer
    mismatch: Callable[[], str | None]
    count: int


@dataclass(frozen=True)
class TimedSet:
    """The data that kernels are timed on. turns: what changes before each run, and the output that was kept.

    mismatch: how that output differs from what its run's operands give, or None.
    """

    inputs: Sequence[GuardedBuffer]
    out: GuardedBuffer
    turns: OperandTurns
    mismatch: Callable[[], str | None]


class CpuData(ABC):
    """All data of one problem."""

    sets: Sequence[CheckSet]

    @cached_property
    def timed(self) -> TimedSet:
        """The timing data. A device that only checks does not ask for them."""
        return self._timed_set()

    @abstractmethod
    def _timed_set(self) -> TimedSet: ...

    def inputs(self) -> list[tuple[int, int]]:
        """Returns address and bytes of the inputs that never change. Timing inputs change for every run."""
        return [(one.address, one.size) for checked in self.sets for one in checked.inputs]


class ProblemData(CpuData):
    """All data of a sum of products."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._seed = seed
        self.storage = STORAGE[problem.result_dtype]
        self.out_bytes = math.prod(problem.operand_shapes[2]) * self.storage.itemsize
        self._exponents = exponents(factor_axes(problem), problem.dtype, seed)
        first, *others = dense(problem), *mantissa(problem), not_finite(problem)
        dense_set, self._expected = self._set(first, flush=True)
        self.sets = [dense_set, *(self._set(pattern, flush=False)[0] for pattern in others)]

    def _set(self, pattern: Pattern, *, flush: bool) -> tuple[CheckSet, Array]:
        """Returns a set with the result that it must give."""
        integers: tuple[Integers, Integers] = operands(self.problem, pattern, self._seed)
        if pattern.name == NOT_FINITE:
            integers = _with_spoilt(self.problem, integers, self._seed)
        with np.errstate(invalid="ignore"):  # infinities of both signs
            expected = expected_output(self.problem, *integers, pattern.result_scale, self._exponents)
        skew = 0 if flush else STORAGE[self.problem.dtype].itemsize
        first, second = (
            holding(_stored(self.problem, pattern, values, number, self._exponents), flush=flush, skew=skew)
            for number, values in enumerate(integers)
        )
        out = GuardedBuffer(self.out_bytes, flush=flush, skew=0 if flush else self.storage.itemsize)
        values = out.view(self.storage, (out.size // self.storage.itemsize,))
        comparison = Comparison(self.problem, values, expected, numbers=pattern.name != NOT_FINITE)
        where = FLUSH if flush else SKEWED
        made = CheckSet(pattern.name, where, (first, second), out, comparison.mismatch, expected.size)
        return made, expected

    def _timed_set(self) -> TimedSet:
        """Copy the first check's operands to another place, to get other signs for every run.

        Which rows, columns and depths are negative (tile_oracle.device.factors) is drawn for each run. So no
        earlier result is correct, and no correct result was in memory before the run.
        """
        problem, storage = self.problem, STORAGE[self.problem.dtype]
        inputs = [
            holding(buffer.view(storage, shape), flush=False)
            for buffer, shape in zip(self.sets[0].inputs, problem.operand_shapes, strict=False)
        ]
        out = GuardedBuffer(self.out_bytes, flush=False)
        axes, random = factor_axes(problem), np.random.default_rng((self._seed, 4))
        (row_count, depths), (column_count, _) = axes.first.sizes, axes.second.sizes
        rows, columns, inner = (signs(random, count) for count in (row_count, column_count, depths))
        turnings = [
            sign_turning(buffer, storage.itemsize, axes[number], [(number, own), (2, inner)])
            for number, (buffer, own) in enumerate(zip(inputs, (rows, columns), strict=True))
        ]
        turns = OperandTurns(turnings, 3, STATES, out, self.storage.itemsize, self._seed)
        comparison = Comparison(problem, turns.kept.view(self.storage), self._expected)

        def mismatch() -> str | None:
            row, column, _ = turns.kept_states.tolist()
            negative = (
                rows[row : row + row_count] ^ rows[:row_count],
                columns[column : column + column_count] ^ columns[:column_count],
            )
            return comparison.mismatch(negative)

        return TimedSet(inputs, out, turns, mismatch)


def _with_spoilt(problem: Problem, integers: tuple[Integers, Integers], seed: int) -> tuple[Array, Array]:
    """Integers, some of which are infinite or NaN instead."""
    first, second = (one.astype(np.float32) for one in integers)
    for number, values in enumerate((first, second)):
        chosen = spoilt(problem, number, seed)
        values.reshape(-1)[chosen.places] = chosen.values
    return first, second


def _stored(problem: Problem, pattern: Pattern, integers: Integers, number: int, powers: Exponents) -> Array:
    values = integers * np.float32(pattern.scale)
    return encode(powers.scaled(factor_axes(problem), number, values), problem.dtype)


class Comparison:
    """Compares results with the expected one, any number of times. values: where they are, flat. numbers: no
    value may be NaN."""

    def __init__(self, problem: Problem, values: Array, expected: Array, *, numbers: bool = True) -> None:
        self._problem = problem
        storage = STORAGE[problem.result_dtype]
        self._values = values
        self._bits_type = np.dtype(f"u{storage.itemsize}")
        self._bits = self._values.view(self._bits_type)
        self._sign = self._bits_type.type(1 << (8 * storage.itemsize - 1))
        self._axes = factor_axes(problem).result
        self._numbers = numbers
        self._infinity = encode(np.full(1, np.inf), problem.result_dtype).view(self._bits_type)[0]
        self._wanted = expected.reshape(-1).view(self._bits_type)
        if not numbers:
            self._nan = np.flatnonzero(self._is_nan(self._wanted))

    def mismatch(self, negative: tuple[Array, Array] | None = None) -> str | None:
        """Describes the difference, or None. negative: which rows and columns were negated."""
        bits, wanted = self._bits, self._wanted
        if negative is not None:
            signs = (one * self._sign for one in negative)
            rows, columns = (one.take(places) for one, places in zip(signs, self._axes.places, strict=True))
            wanted = (wanted.reshape(self._axes.extents) ^ rows ^ columns).reshape(-1)
        # Bit for bit, except that +0 equals -0.
        unequal = bits != wanted
        if not unequal.any():
            return None
        unequal &= ((bits | wanted) & ~self._sign) != 0
        if not self._numbers:  # any NaN will do but that of an output that was not written
            there = bits[self._nan]
            unequal[self._nan] = ~self._is_nan(there) | (there == poison(self._bits_type))
        if not unequal.any():
            return None
        storage = self._values.dtype
        return _explain(self._problem, bits.view(storage), wanted.view(storage), unequal)

    def _is_nan(self, bits: Array) -> npt.NDArray[np.bool_]:
        """By comparing integers, which takes a fraction of the time of decoding."""
        return np.asarray((bits & ~self._sign) > self._infinity)


def _stray_values(out: Array, dtype: str) -> str | None:
    """Returns how many values were left unwritten or are NaN; None if there are none."""
    nan = nan_count(out, dtype)
    return unwritten(out) or (f"{nan:,} of {out.size:,} values are NaN" if nan else None)


def _explain(problem: Problem, got: Array, wanted: Array, different: npt.NDArray[np.bool_]) -> str:
    dtype = problem.result_dtype
    stray = _stray_values(got, dtype)
    at = int(np.argmax(different))
    value, want = (float(decode(values[at : at + 1], dtype)[0]) for values in (got, wanted))
    where = ", ".join(map(str, np.unravel_index(at, problem.operand_shapes[2])))
    count = int(np.count_nonzero(different))
    text = f"{count:,} of {different.size:,} values wrong, at ({where}) got {value:g}, exact {want:g}"
    return text + (f"; {stray}" if stray else "")
