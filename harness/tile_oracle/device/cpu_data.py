"""One problem's data on the CPU: operands for checks and timing, and the expected results.

The data of the runs differ in their placement in memory:

check, dense    directly before a guard page: aligned to the element, or more by chance
check, others   one element beyond a 64-byte boundary
timing          at a 64-byte boundary
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.ma  # np.unique imports it in its first call: a kernel may have changed the root by then
import numpy.typing as npt

from tile_oracle.device import reference
from tile_oracle.device.check_data import (
    Integers,
    Pattern,
    column_count,
    columns_of_result,
    columns_of_second,
    countable,
    dense,
    mantissa,
    negated,
    operands,
)
from tile_oracle.device.guarded_memory import GuardedBuffer, holding
from tile_oracle.device.native_clock import Watch
from tile_oracle.device.product_check import ProductCheck, product_check
from tile_oracle.device.reference import Expectation, expectation
from tile_oracle.device.stray_values import POISON_BYTE, nan_count, unwritten
from tile_oracle.number_formats import STORAGE, Array, decode, encode
from tile_oracle.problem import Problem

FLUSH = "before a guard page"
SKEWED = "one element beyond a 64-byte boundary"
ALIGNED = "at 64-byte boundaries"

_SIGN_PLACES = 509
"""Number of elements whose signs are flipped in turn; a prime, so that it matches no period of a kernel."""
_WATCHED = 16
"""Values of the output that every timed run must have written when it returns."""
_ROUNDS = 32
_WHOLE_FLOPS = 1e8
"""Up to this size the results of the other sets are compared in full, above it at some points, which suffice
to show the faults that these sets look for."""


class CpuCheck(Protocol):
    """One set of data that every kernel is checked with."""

    @property
    def name(self) -> str:
        """Name of the pattern of values."""

    @property
    def where(self) -> str:
        """Their placement in memory."""

    @property
    def inputs(self) -> Sequence[GuardedBuffer]:
        """The operands."""

    @property
    def out(self) -> GuardedBuffer:
        """Buffer for the result."""

    @property
    def kind(self) -> str:
        """The kind of comparison: the column `check` of records."""

    @property
    def count(self) -> int:
        """Number of values compared."""

    def mismatch(self) -> str | None:
        """How the content of `out` differs from the expected result, or None."""


class CpuTimed(Protocol):
    """The data that kernels are timed on."""

    @property
    def problem(self) -> Problem: ...
    @property
    def inputs(self) -> Sequence[GuardedBuffer]: ...
    @property
    def out(self) -> GuardedBuffer: ...
    @property
    def watch(self) -> Watch:
        """The input signs to flip for each run, and the output values that a run must have written."""

    def renew(self) -> None:
        """Changes the operands and with them the expected result, and poisons the output."""

    def mismatch(self) -> str | None:
        """How the output of the last run differs from the expected result, or None."""


class CpuData(Protocol):
    """All data of one problem."""

    @property
    def sets(self) -> Sequence[CpuCheck]: ...
    @property
    def timed(self) -> CpuTimed: ...
    def inputs(self) -> list[tuple[int, int]]:
        """Address and bytes of the inputs that never change."""


@dataclass(frozen=True)
class CheckSet:
    """Operands, a buffer for the result, and the expected result."""

    pattern: Pattern
    where: str
    inputs: tuple[GuardedBuffer, GuardedBuffer]
    out: GuardedBuffer
    expected: Expectation | ProductCheck
    comparison: Comparison

    @property
    def name(self) -> str:
        return self.pattern.name

    @property
    def kind(self) -> str:
        return self.expected.kind

    @property
    def count(self) -> int:
        return self.expected.count

    def mismatch(self) -> str | None:
        return self.comparison.mismatch()


class ProblemData:
    """All data of a problem. Timing data are made when the first kernel has passed its check.

    The first set's result is compared in full, or by products where that would take too long. The results of
    the other sets are compared in full or at points.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._seed = seed
        self.storage = STORAGE[problem.result_dtype]
        self.out_bytes = math.prod(problem.operand_shapes[2]) * self.storage.itemsize
        small = reference.whole_is_quick(problem)
        first = dense(problem) if small else countable(problem)
        integers = operands(problem, first, seed)
        expected: Expectation | ProductCheck = (
            expectation(problem, *integers, seed, first.result_scale, True)
            if small
            else product_check(problem, *integers, seed)
        )
        self.sets = [self._set(first, integers, expected, FLUSH)]
        for pattern in mantissa(problem):
            integers = operands(problem, pattern, seed)
            quick = problem.flops <= _WHOLE_FLOPS
            expected = expectation(problem, *integers, seed, pattern.result_scale, quick)
            self.sets.append(self._set(pattern, integers, expected, SKEWED))
        self._timed: TimedData | None = None

    def _set(
        self,
        pattern: Pattern,
        integers: tuple[Integers, Integers],
        expected: Expectation | ProductCheck,
        where: str,
    ) -> CheckSet:
        flush = where == FLUSH
        skew = 0 if flush else STORAGE[self.problem.dtype].itemsize
        first, second = (
            holding(_stored(self.problem, pattern, values), flush=flush, skew=skew) for values in integers
        )
        out = GuardedBuffer(self.out_bytes, flush=flush, skew=0 if flush else self.storage.itemsize)
        comparison = Comparison(self.problem, out, expected)
        return CheckSet(pattern, where, (first, second), out, expected, comparison)

    def inputs(self) -> list[tuple[int, int]]:
        """Addresses and sizes of the inputs that never change. Timing inputs change for every run."""
        return [(one.address, one.size) for checked in self.sets for one in checked.inputs]

    @property
    def timed(self) -> TimedData:
        if self._timed is None:
            checked = self.sets[0]
            storage = STORAGE[self.problem.dtype]
            first, second = (
                buffer.view(storage, shape)
                for buffer, shape in zip(checked.inputs, self.problem.operand_shapes, strict=False)
            )
            self._timed = TimedData(self.problem, first, second, checked.expected, self._seed)
        return self._timed


def _stored(problem: Problem, pattern: Pattern, integers: Integers) -> Array:
    return encode(integers * np.float32(pattern.scale), problem.dtype)


class TimedData:
    """Timing data: the first check's operands at another place in memory, changed for every run.

    `renew` negates a random half of the second operand's columns, and of the expected result's, and poisons
    the output. So no earlier result is correct, and no correct result was in memory before the run.
    """

    def __init__(
        self,
        problem: Problem,
        first: Array,
        second: Array,
        expected: Expectation | ProductCheck,
        seed: int,
    ) -> None:
        self.problem = problem
        self.expected = expected
        self.inputs = (holding(first, flush=False), holding(second, flush=False))
        storage = STORAGE[problem.result_dtype]
        self.out = GuardedBuffer(math.prod(problem.operand_shapes[2]) * storage.itemsize, flush=False)
        self._bits = np.dtype(f"u{second.itemsize}")
        columns = columns_of_second(problem)
        self._second = (
            self.inputs[1].writable(self._bits, (second.size,)).reshape(-1, columns.depth, columns.inner)
        )
        count = column_count(problem)
        self._rounds = [negated(count, seed + number) for number in range(_ROUNDS)]
        shift = self._bits.type(8 * second.itemsize - 1)
        masks = np.array(self._rounds, self._bits) << shift
        self._masks = list(masks.reshape(_ROUNDS, -1, 1, columns.inner))
        self._round = 0
        self._comparison = Comparison(problem, self.out, expected)
        self.negated = np.zeros(count, np.bool_)
        self.watch = self._watch(second, seed)

    def _watch(self, second: Array, seed: int) -> Watch:
        generator = np.random.default_rng(seed)
        size = second.itemsize
        flat = second.reshape(-1).view(self._bits)
        chosen = generator.integers(0, flat.size, 4 * _SIGN_PLACES)
        # Flipping the sign of a zero would change nothing.
        signs = np.unique(chosen[(flat[chosen] << 1).astype(self._bits) != 0])[:_SIGN_PLACES]
        generator.shuffle(signs)
        out_size = STORAGE[self.problem.result_dtype].itemsize
        count = self.out.size // out_size
        watched = np.unique(np.linspace(0, count - 1, _WATCHED).astype(np.int64))
        # Little-endian: the last byte has the sign. Only NaN and numbers beyond 2^126 have all its bits set.
        return Watch(
            (signs * size + size - 1 + self.inputs[1].writable_address).astype(np.uint64),
            (watched * out_size + out_size - 1 + self.out.address).astype(np.uint64),
        )

    def mismatch(self) -> str | None:
        return self._comparison.mismatch(self.negated)

    def renew(self) -> None:
        at = self._round % _ROUNDS
        self._round += 1
        np.bitwise_xor(self._second, self._masks[at], out=self._second)
        self.negated ^= self._rounds[at]
        self.out.fill(POISON_BYTE)


class Comparison:
    """Compares a buffer's content with the expected result, any number of times."""

    def __init__(self, problem: Problem, out: GuardedBuffer, expected: Expectation | ProductCheck) -> None:
        self._problem, self._expected = problem, expected
        storage = STORAGE[problem.result_dtype]
        self._values = out.view(storage, (out.size // storage.itemsize,))
        self._bits_type = np.dtype(f"u{storage.itemsize}")
        self._bits = self._values.view(self._bits_type)
        self._sign = self._bits_type.type(1 << (8 * storage.itemsize - 1))
        self._columns = columns_of_result(problem)
        if isinstance(expected, Expectation):
            self._wanted = expected.values.reshape(-1).view(self._bits_type)

    def mismatch(self, signs: Array | None = None) -> str | None:
        """Describes the difference, or None. signs: which columns were negated."""
        problem, expected = self._problem, self._expected
        if isinstance(expected, ProductCheck):
            return _product_mismatch(problem, self._values, expected, signs)
        bits, wanted, columns = self._bits, self._wanted, self._columns
        if signs is not None:
            mask = (signs * self._sign).astype(self._bits_type).reshape(-1, 1, columns.inner)
            wanted = (wanted.reshape(-1, columns.depth, columns.inner) ^ mask).reshape(-1)
        if expected.points is not None:
            stray = _stray_values(self._values, problem.result_dtype)
            if stray:
                return stray
            bits = bits[expected.points]
        # Bit for bit, except that +0 equals -0.
        unequal = bits != wanted
        if not unequal.any():
            return None
        unequal &= ((bits | wanted) & ~self._sign) != 0
        if not unequal.any():
            return None
        storage = self._values.dtype
        return _explain(problem, expected, bits.view(storage), wanted.view(storage), unequal)


def _product_mismatch(
    problem: Problem, values: Array, expected: ProductCheck, signs: Array | None
) -> str | None:
    row = expected.wrong_row(values, None if signs is None else np.where(signs, -1.0, 1.0))
    if row is None:
        return None
    stray = _stray_values(values, problem.result_dtype)
    at = _place(row, problem)
    return stray or f"the row of values that begins at {at} has a wrong product with random integers"


def _stray_values(out: Array, dtype: str) -> str | None:
    """How many values were left unwritten or are NaN; None if there are none."""
    missing = unwritten(out)
    if missing:
        return missing
    nan = nan_count(out, dtype)
    return f"{nan:,} of {out.size:,} values are NaN" if nan else None


def _explain(
    problem: Problem,
    expected: Expectation,
    got: Array,
    wanted: Array,
    different: npt.NDArray[np.bool_],
) -> str:
    dtype, points = problem.result_dtype, expected.points
    stray = _stray_values(got, dtype) if points is None else None
    at = int(np.argmax(different))
    value, want = (float(decode(values[at : at + 1], dtype)[0]) for values in (got, wanted))
    where = _place(at if points is None else int(points[at]), problem)
    count = int(np.count_nonzero(different))
    text = f"{count:,} of {different.size:,} values wrong, at {where} got {value:g}, exact {want:g}"
    return text + (f"; {stray}" if stray else "")


def _place(index: int, problem: Problem) -> str:
    where = np.unravel_index(index, problem.operand_shapes[2])
    return f"({', '.join(str(int(i)) for i in where)})"
