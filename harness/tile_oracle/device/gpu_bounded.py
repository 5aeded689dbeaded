"""Results with error bounds on a GPU: rows that the operation's reference on the host knows bounds for.

Row r of a result depends on row r of the first operand and on the other operands. There are two sets:

timing     The operands do not repeat. Some rows, evenly spaced, have bounds; other values must be numbers.
           Before every batch of timed runs these rows of the first operand change, with their bounds; where
           rows lie by columns, their first depth does.
repeating  Operands and result repeat after some rows, so a reference of few rows has bounds for all values.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from threadpoolctl import threadpool_limits

from tile_oracle.device.bounded_rows import BoundedRows, Repeated, host_threads, rows_by_columns, transposed
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
        self._by_columns = rows_by_columns(problem)
        self._changing: list[int] = []
        """The elements of the first operand from which on each turn puts other values."""
        self._turns: list[tuple[list[Array], bytes, bytes]] = []
        with threadpool_limits(host_threads(), user_api="blas"):
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
            firsts, contents = self._turns_of_columns(whole, random)
        else:
            whole = Repeated(values, (self._height, length))
            firsts = [self._rows.first(problem, random, count, far=False) for _ in range(_ROUNDS)]
            contents = [list(first) for first in firsts]
            self._changing = [int(row) * length for row in self._bounded]
        # In one call, because the other operands are decoded in each.
        low, high = self._rows.bounds(
            problem, np.concatenate(firsts), others, np.tile(self._bounded, _ROUNDS)
        )
        for content, *limits in zip(contents, np.split(low, _ROUNDS), np.split(high, _ROUNDS), strict=True):
            self._turns.append((content, limits[0].tobytes(), limits[1].tobytes()))
        size = count * self._width * self._result_size
        low_at, high_at = (self.buffer(size).address for _ in range(2))
        expected = Within(low_at, high_at, self._width, count, step)
        self._put("usual values", [whole, *others], 0, expected)
        self._turn()

    def _turns_of_columns(
        self, whole: Repeated, random: np.random.Generator
    ) -> tuple[list[Array], list[list[Array]]]:
        """Returns the rows with bounds, and what changes in the array that holds them as columns, for each
        turn: the first depth of the matrices that they are in."""
        depth, height = whole.shape[-2:]
        matrices, columns = np.divmod(self._bounded, height)
        at = (matrices[:, None] * depth + np.arange(depth)) * height + columns[:, None]
        rows = np.take(whole.values.reshape(-1), at, mode="wrap")
        changed, of_row = np.unique(matrices, return_inverse=True)
        self._changing = (changed * depth * height).tolist()
        firsts, contents = [], []
        for _ in range(_ROUNDS):
            made = self._rows.first(self.problem, random, -(-len(changed) * height // depth), far=False)
            content = made.reshape(-1)[: len(changed) * height].reshape(len(changed), height)
            firsts.append(rows.copy())
            firsts[-1][:, 0] = content[of_row, columns]
            contents.append(list(content))
        return firsts, contents

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
        if self._by_columns:
            whole = Repeated(transposed(problem, whole.whole()), problem.operand_shapes[0])
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
        content, low, high = self._turns[self._round % _ROUNDS]
        for at, values in zip(self._changing, content, strict=True):
            self._driver.copy_in(timed.inputs[0].address + at * self._size, values.tobytes())
        self._driver.copy_in(timed.expected.low, low)
        self._driver.copy_in(timed.expected.high, high)

    def changed(self) -> bool:
        return any(
            self._driver.copy_out(buffer.address, buffer.size_bytes) != self._content(number, place)
            for number, one in enumerate(self.sets)
            for place, buffer in enumerate(one.inputs)
        )

    def _content(self, number: int, place: int) -> bytes:
        """Returns what operand `place` of set `number` must be."""
        whole = self._stored[number][place].whole()
        if (number, place) == (0, 0):
            content, *_ = self._turns[self._round % _ROUNDS]
            for at, values in zip(self._changing, content, strict=True):
                whole.reshape(-1)[at : at + len(values)] = values
        return whole.tobytes()

    def renew(self) -> None:
        self._round += 1
        self._turn()
        self.sets[0].out.poison()

    def changes(self, count: int) -> list[Launches]:
        """Of values that `renew` replaces."""
        first, (content, *_) = self.sets[0].inputs[0].address, self._turns[0]
        places = itertools.islice(itertools.cycle(zip(self._changing, content, strict=True)), count)
        return [
            (self._work.negation(self.problem, at, first + at * self._size, len(values)),)
            for at, values in places
        ]


def bounded_memory_bytes(problem: Problem) -> int:
    """Returns two sets of operands and results, with guard zones, and bounds of at most one whole result
    each."""
    result = math.prod(problem.operand_shapes[-1]) * STORAGE[problem.result_dtype].itemsize
    return 2 * problem.bytes + 4 * result + 2 * (len(problem.operand_shapes) + 3) * 2 * GUARD_BYTES
