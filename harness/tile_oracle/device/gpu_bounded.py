"""Results with error bounds on a GPU: rows that the operation's reference on the host knows bounds for.

Row r of a result depends on row r of the first operand and on the other operands. There are two sets:

timing     The operands do not repeat. Some rows, evenly spaced, have bounds; other values must be numbers.
           Before every batch of timed runs these rows of the first operand change, with their bounds; where
           rows lie by columns, their first depth does. The device holds all that they change to.
repeating  Operands and result repeat after some rows, so a reference of few rows has bounds for all values.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from tile_oracle.device.bounded_rows import (
    BoundedRows,
    Repeated,
    blas_threads,
    host_threads,
    rows_by_columns,
    transposed,
)
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
        self._kept: list[tuple[int, Array]] = []
        """Addresses and values of bounds, and of what turns put into operands."""
        self._round = 0
        self._by_columns = rows_by_columns(problem)
        self._changing: list[int] = []
        """The elements of the first operand from which on each turn puts other values."""
        self._contents: Array
        """These values, (turns, places, values), and with their bounds on the device:"""
        self._turns: tuple[int, int, int]
        with blas_threads(host_threads()):
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
        values = self._rows.first(problem, random, made, far=False)
        if self._by_columns:
            whole = Repeated(values, problem.operand_shapes[0])
            firsts = self._turns_of_columns(whole, random)
        else:
            whole = Repeated(values, (self._height, length))
            made_rows = [self._rows.first(problem, random, count, far=False) for _ in range(_ROUNDS)]
            firsts = np.concatenate(made_rows)
            # Adjacent rows change in one copy.
            self._contents = firsts.reshape(_ROUNDS, 1 if step == 1 else count, -1)
            self._changing = [0] if step == 1 else (self._bounded * length).tolist()
        # In one call, because the other operands are decoded in each.
        low, high = self._rows.bounds(problem, firsts, others, np.tile(self._bounded, _ROUNDS))
        self._turns = self._keep(self._contents), self._keep(low), self._keep(high)
        size = count * self._width * self._result_size
        low_at, high_at = (self.buffer(size).address for _ in range(2))
        expected = Within(low_at, high_at, self._width, count, step)
        self._put("usual values", [whole, *others], 0, expected)
        self._turn()

    def _keep(self, values: Array) -> int:
        """Copies values to the device. Returns their address there."""
        for address, kept in self._kept:
            if kept is values:
                return address
        address = self.buffer(values.nbytes).address
        self._driver.copy_in(address, values.tobytes())
        self._kept.append((address, values))
        return address

    def _turns_of_columns(self, whole: Repeated, random: np.random.Generator) -> Array:
        """Returns the rows with bounds of each turn. What changes in the array that holds them as columns is
        the first depth of the matrices that they are in."""
        depth, height = whole.shape[-2:]
        matrices, columns = np.divmod(self._bounded, height)
        at = (matrices[:, None] * depth + np.arange(depth)) * height + columns[:, None]
        rows = np.take(whole.values.reshape(-1), at, mode="wrap")
        changed, of_row = np.unique(matrices, return_inverse=True)
        self._changing = (changed * depth * height).tolist()
        firsts, contents = np.tile(rows, (_ROUNDS, 1, 1)), list[Array]()
        for first in firsts:
            made = self._rows.first(self.problem, random, -(-len(changed) * height // depth), far=False)
            contents.append(made.reshape(-1)[: len(changed) * height].reshape(len(changed), height))
            first[:, 0] = contents[-1][of_row, columns]
        self._contents = np.stack(contents)
        return firsts.reshape(-1, depth)

    def _repeating_set(self) -> None:
        problem, random = self.problem, np.random.default_rng((self._seed, 1))
        period = min(self._height, self._rows.period(problem))
        first = self._rows.first(problem, random, period, far=True)
        others = self._rows.others(problem, random, period, far=True)
        with np.errstate(invalid="ignore"):  # infinities and NaN
            low, high = self._rows.bounds(problem, first, others, np.arange(period))
        whole = Repeated(first, (self._height, first.shape[1]))
        if self._by_columns:
            whole = Repeated(transposed(problem, whole.whole()), problem.operand_shapes[0])
        name = f"rows that repeat after {period:,}"
        self._put(
            name,
            [whole, *others],
            SKEW_BYTES,
            Within(self._keep(low), self._keep(high), self._width, period, 0),
        )

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
        number, (contents, low, high) = self._round % _ROUNDS, self._turns
        _, places, length = self._contents.shape
        for place, at in enumerate(self._changing):
            source = contents + (number * places + place) * length * self._size
            self._driver.copy_within(timed.inputs[0].address + at * self._size, source, length * self._size)
        size = timed.expected.rows * self._width * self._result_size
        self._driver.copy_within(timed.expected.low, low + number * size, size)
        self._driver.copy_within(timed.expected.high, high + number * size, size)

    def changed(self) -> bool:
        return any(
            self._driver.copy_out(at, values.nbytes) != values.tobytes() for at, values in self._kept
        ) or any(
            self._driver.copy_out(buffer.address, buffer.size_bytes) != self._content(number, place)
            for number, one in enumerate(self.sets)
            for place, buffer in enumerate(one.inputs)
        )

    def _content(self, number: int, place: int) -> bytes:
        """Returns what operand `place` of set `number` must be."""
        whole = self._stored[number][place].whole()
        if (number, place) == (0, 0):
            for at, values in zip(self._changing, self._contents[self._round % _ROUNDS], strict=True):
                whole.reshape(-1)[at : at + len(values)] = values
        return whole.tobytes()

    def renew(self) -> None:
        self._round += 1
        self._turn()
        self.sets[0].out.poison()

    def changes(self, count: int) -> list[Launches]:
        """Of values that `renew` replaces."""
        first, length = self.sets[0].inputs[0].address, self._contents.shape[-1]
        return [
            (self._work.negation(self.problem, at, first + at * self._size, length),)
            for at in itertools.islice(itertools.cycle(self._changing), count)
        ]


def bounded_memory_bytes(problem: Problem, rows: BoundedRows) -> int:
    """Returns two sets of operands and results, with guard zones, what turns put into the first operand, and
    bounds: of a turn in use, of all turns, and of rows that repeat."""
    height, width = math.prod(problem.operand_shapes[-1][:-1]), problem.operand_shapes[-1][-1]
    sampled, repeated = (min(height, one(problem)) for one in (rows.sample, rows.period))
    bounds = 2 * ((_ROUNDS + 1) * sampled + repeated) * width * STORAGE[problem.result_dtype].itemsize
    contents = _ROUNDS * sampled * math.prod(problem.operand_shapes[0]) // height
    contents *= STORAGE[problem.dtype].itemsize
    guards = 2 * (2 * len(problem.operand_shapes) + 7) * GUARD_BYTES
    return 2 * problem.bytes + bounds + contents + guards
