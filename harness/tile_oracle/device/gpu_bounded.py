"""Results with error bounds on a GPU: rows that the operation's reference on the host knows bounds for.

Row r of a result depends on row r of the first operand and on the other operands. There are two sets:

timing     The operands do not repeat. Some rows, evenly spaced, have bounds; other values must be numbers.
           Before every batch of timed runs these rows of the first operand change, with their bounds.
repeating  Operands and result repeat after some rows, so a reference of few rows has bounds for all values.
"""

from __future__ import annotations

import math

import numpy as np

from tile_oracle.device.bounded_rows import BoundedRows, Repeated
from tile_oracle.device.gpu_data import SKEW_BYTES, GpuData, OperandSet
from tile_oracle.device.gpu_work import GUARD_BYTES, Buffer, DeviceWork, Within
from tile_oracle.device.loaded_run import Launches
from tile_oracle.device.runtime.driver import Driver
from tile_oracle.device.stray_values import POISON_BYTE
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, Array

_ROUNDS = 4
"""Different contents of the rows that change between batches."""
_MADE_VALUES = 1 << 22
"""At most this many values of the first operand are random; a larger one repeats them."""


class BoundedData(GpuData):
    """See the module."""

    def __init__(
        self, driver: Driver, work: DeviceWork, problem: Problem, seed: int, rows: BoundedRows
    ) -> None:
        super().__init__(driver, problem)
        self._work, self._seed, self._rows = work, seed, rows
        self._size, self._result_size = (
            STORAGE[one].itemsize for one in (problem.dtype, problem.result_dtype)
        )
        shapes = problem.operand_shapes
        self._height, self._width = math.prod(shapes[-1][:-1]), shapes[-1][-1]
        self._stored: list[list[Repeated]] = []
        self._round = 0
        self._turns: list[tuple[Array, bytes, bytes]] = []
        self._timed_set()
        self._repeating_set()
        driver.synchronize()

    def _timed_set(self) -> None:
        problem, random = self.problem, np.random.default_rng((self._seed, 0))
        count = min(self._height, self._rows.sample(problem))
        step = self._height // count
        self._bounded = np.arange(count) * step
        others = self._rows.others(problem, random, None, far=False)
        length = math.prod(problem.operand_shapes[0]) // self._height
        made = max(1, min(self._height, _MADE_VALUES // length))
        whole = Repeated(self._rows.first(problem, random, made, far=False), (self._height, length))
        firsts = [self._rows.first(problem, random, count, far=False) for _ in range(_ROUNDS)]
        # In one call, because the other operands are decoded in each.
        low, high = self._rows.bounds(
            problem, np.concatenate(firsts), others, np.tile(self._bounded, _ROUNDS)
        )
        for first, *limits in zip(firsts, np.split(low, _ROUNDS), np.split(high, _ROUNDS), strict=True):
            self._turns.append((first, limits[0].tobytes(), limits[1].tobytes()))
        size = count * self._width * self._result_size
        low_at, high_at = (self.buffer(size).address for _ in range(2))
        expected = Within(low_at, high_at, self._width, count, step)
        self._put("usual values", [whole, *others], 0, expected)
        self._turn()

    def _repeating_set(self) -> None:
        problem, random = self.problem, np.random.default_rng((self._seed, 1))
        period = min(self._height, self._rows.period(problem))
        first = self._rows.first(problem, random, period, far=True)
        others = self._rows.others(problem, random, period, far=True)
        with np.errstate(invalid="ignore"):  # infinities and NaN
            low, high = self._rows.bounds(problem, first, others, np.arange(period))
        size = period * self._width * self._result_size
        low_at, high_at = (self.buffer(size).address for _ in range(2))
        self._driver.copy_in(low_at, low.tobytes())
        self._driver.copy_in(high_at, high.tobytes())
        whole = Repeated(first, (self._height, first.shape[1]))
        name = f"rows that repeat after {period:,}"
        self._put(name, [whole, *others], SKEW_BYTES, Within(low_at, high_at, self._width, period, 0))

    def _put(self, name: str, operands: list[Repeated], skew: int, expected: Within) -> None:
        """Copies operands to the device. NaN around them spoils the result of a kernel that reads there."""
        inputs: list[Buffer] = []
        for operand in operands:
            inputs.append(self.buffer(operand.size * operand.values.itemsize, POISON_BYTE, skew))
            self._fill(inputs[-1], operand)
        out = self.buffer(self._height * self._width * self._result_size, skew=skew)
        where = f"{skew} bytes beyond a 256-byte boundary" if skew else "at 256-byte boundaries"
        self._stored.append(operands)
        self.sets.append(OperandSet(name, where, tuple(inputs), out, expected))

    def _fill(self, buffer: Buffer, operand: Repeated) -> None:
        """Copies the values that repeat to the device, where they are doubled until they fill the buffer."""
        period = operand.values.tobytes()[: buffer.size_bytes]
        self._driver.copy_in(buffer.address, period)
        there = len(period)
        while there < buffer.size_bytes:
            count = min(there, buffer.size_bytes - there)
            self._driver.copy_within(buffer.address + there, buffer.address, count)
            there += count

    def _turn(self) -> None:
        """Puts the current content into the rows that change."""
        timed = self.sets[0]
        assert isinstance(timed.expected, Within)
        first, low, high = self._turns[self._round % _ROUNDS]
        bytes_of_row = first.shape[1] * self._size
        for row, values in zip(self._bounded, first, strict=True):
            self._driver.copy_in(timed.inputs[0].address + int(row) * bytes_of_row, values.tobytes())
        self._driver.copy_in(timed.expected.low, low)
        self._driver.copy_in(timed.expected.high, high)

    def changed(self) -> bool:
        return any(
            self._driver.copy_out(buffer.address, buffer.size_bytes) != self._content(number, place)
            for number, one in enumerate(self.sets)
            for place, buffer in enumerate(one.inputs)
        )

    def _content(self, number: int, place: int) -> bytes:
        """What operand `place` of set `number` must be."""
        whole = self._stored[number][place].whole()
        if (number, place) == (0, 0):
            whole[self._bounded] = self._turns[self._round % _ROUNDS][0]
        return whole.tobytes()

    def renew(self) -> None:
        self._round += 1
        self._turn()
        self.sets[0].out.poison()

    def changes(self, count: int) -> list[Launches]:
        """Of rows that `renew` replaces."""
        first, length = self.sets[0].inputs[0].address, self._stored[0][0].shape[-1]
        rows = [int(self._bounded[i % len(self._bounded)]) for i in range(count)]
        return [
            (self._work.negation(self.problem, row, first + row * length * self._size, length),)
            for row in rows
        ]


def bounded_memory_bytes(problem: Problem) -> int:
    """Two sets of operands and results, with guard zones, and bounds of at most one whole result each."""
    result = math.prod(problem.operand_shapes[-1]) * STORAGE[problem.result_dtype].itemsize
    return 2 * problem.bytes + 4 * result + 2 * (len(problem.operand_shapes) + 3) * 2 * GUARD_BYTES
