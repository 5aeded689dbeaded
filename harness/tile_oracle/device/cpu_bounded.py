"""Results with error bounds on the target cpu. Every value is compared with a reference on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tile_oracle.device.bounded_rows import BoundedRows, Repeated, outside
from tile_oracle.device.guarded_memory import GuardedBuffer, holding
from tile_oracle.device.stray_values import unwritten
from tile_oracle.device.turns import whole_turns
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, Array

_ROUNDS = 4


@dataclass(frozen=True)
class BoundedCheck:
    """One set of operands. See tile_oracle.device.cpu_data.CpuCheck."""

    name: str
    where: str
    inputs: tuple[GuardedBuffer, ...]
    out: GuardedBuffer
    problem: Problem
    bounds: tuple[Array, Array]
    kind: str = "full"

    @property
    def count(self) -> int:
        """Number of values compared: all."""
        return math.prod(self.problem.operand_shapes[-1])

    def mismatch(self) -> str | None:
        """What is wrong with the result, or None."""
        return _mismatch(self.out.view(np.uint8, (self.out.size,)), self.problem, self.bounds)


class BoundedTimed:
    """Random operands, others for every run, at the same addresses."""

    def __init__(self, data: BoundedCpuData) -> None:
        self._data, self.problem = data, data.problem
        self._rounds = [data.operands(2 + number, far=False) for number in range(_ROUNDS)]
        self._bounds: list[tuple[Array, Array] | None] = [None] * _ROUNDS
        self.inputs = tuple(holding(one, flush=False) for one in self._rounds[0])
        size = STORAGE[self.problem.result_dtype].itemsize
        self.out = GuardedBuffer(math.prod(self.problem.operand_shapes[-1]) * size, flush=False)
        self.turns = whole_turns(self.inputs, self._rounds, self.out, size, data.seed)

    def mismatch(self) -> str | None:
        """What is wrong with the result that was kept, or None."""
        state = int(self.turns.kept_states[0])
        bounds = self._bounds[state]
        if bounds is None:
            bounds = self._bounds[state] = self._data.bounds(self._rounds[state])
        return _mismatch(self.turns.kept, self.problem, bounds)


class BoundedCpuData:
    """See tile_oracle.device.cpu_data.CpuData."""

    def __init__(self, problem: Problem, seed: int, rows: BoundedRows) -> None:
        self.problem, self.seed, self._rows = problem, seed, rows
        self.sets = [
            self._set("usual values", self.operands(0, far=False), flush=True),
            self._set("values of all sizes", self.operands(1, far=True), flush=False),
        ]
        self._timed: BoundedTimed | None = None

    def operands(self, number: int, *, far: bool) -> list[Array]:
        """Operands of a set in their storage format."""
        random, shape = np.random.default_rng((self.seed, number)), self.problem.operand_shapes[0]
        rows = math.prod(self.problem.operand_shapes[-1][:-1])
        first = self._rows.first(self.problem, random, rows, far=far)
        others = self._rows.others(self.problem, random, None, far=far)
        return [first.reshape(shape), *(one.whole() for one in others)]

    def bounds(self, operands: Sequence[Array]) -> tuple[Array, Array]:
        """The least and the largest right values."""
        rows = math.prod(self.problem.operand_shapes[-1][:-1])
        first = operands[0].reshape(rows, -1)
        others = [Repeated(one, one.shape) for one in operands[1:]]
        with np.errstate(invalid="ignore"):  # infinities and NaN
            return self._rows.bounds(self.problem, first, others, np.arange(rows))

    def _set(self, name: str, operands: list[Array], *, flush: bool) -> BoundedCheck:
        inputs = tuple(holding(one, flush=flush, skew=0 if flush else one.itemsize) for one in operands)
        size = STORAGE[self.problem.result_dtype].itemsize
        values = math.prod(self.problem.operand_shapes[-1])
        out = GuardedBuffer(values * size, flush=flush, skew=0 if flush else size)
        where = "before a guard page" if flush else "skewed"
        return BoundedCheck(name, where, inputs, out, self.problem, self.bounds(operands))

    @property
    def timed(self) -> BoundedTimed:
        """The operands that runs are timed with."""
        if self._timed is None:
            self._timed = BoundedTimed(self)
        return self._timed

    def inputs(self) -> list[tuple[int, int]]:
        """Address and size (bytes) of all operands that no run may change."""
        return [(buffer.address, buffer.size) for one in self.sets for buffer in one.inputs]


def _mismatch(out: Array, problem: Problem, bounds: tuple[Array, Array]) -> str | None:
    stored = out.view(STORAGE[problem.result_dtype]).reshape(problem.operand_shapes[-1])
    return unwritten(stored) or outside(stored, *bounds, problem.result_dtype)
