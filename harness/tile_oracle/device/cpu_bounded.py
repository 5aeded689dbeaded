"""Results with error bounds on the target cpu. Every value is compared with a reference on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tile_oracle.device.bounded_rows import BoundedRows, Repeated, outside, rows_by_columns, transposed
from tile_oracle.device.cpu_data import CheckSet, CpuData, TimedSet
from tile_oracle.device.guarded_memory import GuardedBuffer, holding
from tile_oracle.device.stray_values import unwritten
from tile_oracle.device.turns import whole_turns
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, Array

_ROUNDS = 4


class BoundedCpuData(CpuData):
    """Operands of an operation whose results are right within bounds."""

    def __init__(self, problem: Problem, seed: int, rows: BoundedRows) -> None:
        self.problem, self.seed, self._rows = problem, seed, rows
        self.sets = [
            self._set("usual values", self.operands(0, far=False), flush=True),
            self._set("values of all sizes", self.operands(1, far=True), flush=False),
        ]

    def operands(self, number: int, *, far: bool) -> list[Array]:
        """Operands of a set in their storage format."""
        random, shape = np.random.default_rng((self.seed, number)), self.problem.operand_shapes[0]
        rows = math.prod(self.problem.operand_shapes[-1][:-1])
        first = self._rows.first(self.problem, random, rows, far=far)
        others = self._rows.others(self.problem, random, None, far=far)
        lying = transposed(self.problem, first) if rows_by_columns(self.problem) else first.reshape(shape)
        return [lying, *(one.whole() for one in others)]

    def bounds(self, operands: Sequence[Array]) -> tuple[Array, Array]:
        """Returns the least and the largest right values."""
        rows = math.prod(self.problem.operand_shapes[-1][:-1])
        lying = operands[0].swapaxes(-1, -2) if rows_by_columns(self.problem) else operands[0]
        first = lying.reshape(rows, -1)
        others = [Repeated(one, one.shape) for one in operands[1:]]
        with np.errstate(invalid="ignore"):  # infinities and NaN
            return self._rows.bounds(self.problem, first, others, np.arange(rows))

    def _set(self, name: str, operands: list[Array], *, flush: bool) -> CheckSet:
        inputs = tuple(holding(one, flush=flush, skew=0 if flush else one.itemsize) for one in operands)
        problem, size = self.problem, STORAGE[self.problem.result_dtype].itemsize
        count = math.prod(problem.operand_shapes[-1])
        out = GuardedBuffer(count * size, flush=flush, skew=0 if flush else size)
        stored = out.view(np.uint8, (out.size,))
        mismatch = partial(_mismatch, stored, problem, self.bounds(operands))
        return CheckSet(name, "before a guard page" if flush else "skewed", inputs, out, mismatch, count)

    def _timed_set(self) -> TimedSet:
        """Make random operands, others for every run, at the same addresses."""
        problem, size = self.problem, STORAGE[self.problem.result_dtype].itemsize
        rounds = [self.operands(2 + number, far=False) for number in range(_ROUNDS)]
        inputs = tuple(holding(one, flush=False) for one in rounds[0])
        out = GuardedBuffer(math.prod(problem.operand_shapes[-1]) * size, flush=False)
        turns = whole_turns(inputs, rounds, out, size, self.seed)
        bounds = [self.bounds(one) for one in rounds]

        def mismatch() -> str | None:
            return _mismatch(turns.kept, problem, bounds[int(turns.kept_states[0])])

        return TimedSet(inputs, out, turns, mismatch)


def _mismatch(out: Array, problem: Problem, bounds: tuple[Array, Array]) -> str | None:
    stored = out.view(STORAGE[problem.result_dtype]).reshape(problem.operand_shapes[-1])
    return unwritten(stored) or outside(stored, *bounds, problem.result_dtype)
