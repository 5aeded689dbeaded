"""Results with error bounds on a GPU: rows that the operation's reference on the host knows bounds for.

Row r of a result depends on row r of the first operand and on the other operands. There are two sets:

timing     The operands do not repeat. Some rows, evenly spaced, have bounds; other values must be numbers.
           Before every batch of timed runs these rows of the first operand change, with their bounds; where
           rows lie by columns, their first depth does. The device holds all that they change to.
repeating  Operands and result repeat after some rows, so a reference of few rows has bounds for all values.

What the host computes for both may be made ahead, by another process.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from tile_oracle.device.bounded_rows import (
    BoundedRows,
    Repeated,
    Rows,
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


@dataclass(frozen=True)
class HostData:
    """What the host computes of a problem. It can be pickled.

    usual, repeating: the operands of the two sets. bounded: the rows that have bounds, `step` apart.
    changing: the elements of the first operand from which on each turn puts other values. contents: these
    values, (turns, places, values). low, high: the bounds of the bounded rows in all turns. period: after how
    many rows the repeating set repeats. repeated_low, repeated_high: the bounds of these.
    """

    usual: list[Repeated]
    step: int
    bounded: int
    changing: list[int]
    contents: Array
    low: Array
    high: Array
    repeating: list[Repeated]
    period: int
    repeated_low: Array
    repeated_high: Array


def host_data(problem: Problem, seed: int, rows: BoundedRows) -> HostData:
    """Computes a problem's operands and their bounds."""
    with blas_threads(host_threads()):
        return HostData(*_usual_set(problem, seed, rows), *_repeating_set(problem, seed, rows))


def _size(problem: Problem) -> tuple[int, int]:
    """Returns the number of rows of the result, and their length."""
    shape = problem.operand_shapes[-1]
    return math.prod(shape[:-1]), shape[-1]


def _usual_set(
    problem: Problem, seed: int, rows: BoundedRows
) -> tuple[list[Repeated], int, int, list[int], Array, Array, Array]:
    height, _ = _size(problem)
    random = np.random.default_rng((seed, 0))
    count = min(height, rows.sample(problem))
    step = height // count
    bounded = np.arange(count) * step
    others = rows.others(problem, random, None, far=False)
    length = math.prod(problem.operand_shapes[0]) // height
    made = max(1, min(height, _MADE_VALUES // length))
    values = rows.first(problem, random, made, far=False)
    if rows_by_columns(problem):
        whole = Repeated(values, problem.operand_shapes[0])
        firsts, changing, contents = _turns_of_columns(problem, rows, whole, bounded, random)
    else:
        whole = Repeated(values, (height, length))
        firsts = np.concatenate([rows.first(problem, random, count, far=False) for _ in range(_ROUNDS)])
        # Adjacent rows change in one copy.
        contents = firsts.reshape(_ROUNDS, 1 if step == 1 else count, -1)
        changing = [0] if step == 1 else (bounded * length).tolist()
    # In one call, because the other operands are decoded in each.
    low, high = rows.bounds(problem, firsts, others, np.tile(bounded, _ROUNDS))
    return [whole, *others], step, count, changing, contents, low, high


def _turns_of_columns(
    problem: Problem, rows: BoundedRows, whole: Repeated, bounded: Rows, random: np.random.Generator
) -> tuple[Array, list[int], Array]:
    """Returns the rows with bounds of each turn, and what changes in the array that holds them as columns:
    the first depth of the matrices that they are in."""
    depth, height = whole.shape[-2:]
    matrices, columns = np.divmod(bounded, height)
    at = (matrices[:, None] * depth + np.arange(depth)) * height + columns[:, None]
    values = np.take(whole.values.reshape(-1), at, mode="wrap")
    changed, of_row = np.unique(matrices, return_inverse=True)
    firsts, contents = np.tile(values, (_ROUNDS, 1, 1)), list[Array]()
    for first in firsts:
        made = rows.first(problem, random, -(-len(changed) * height // depth), far=False)
        contents.append(made.reshape(-1)[: len(changed) * height].reshape(len(changed), height))
        first[:, 0] = contents[-1][of_row, columns]
    return firsts.reshape(-1, depth), (changed * depth * height).tolist(), np.stack(contents)


def _repeating_set(
    problem: Problem, seed: int, rows: BoundedRows
) -> tuple[list[Repeated], int, Array, Array]:
    height, _ = _size(problem)
    random = np.random.default_rng((seed, 1))
    period = min(height, rows.period(problem))
    first = rows.first(problem, random, period, far=True)
    others = rows.others(problem, random, period, far=True)
    with np.errstate(invalid="ignore"):  # infinities and NaN
        low, high = rows.bounds(problem, first, others, np.arange(period))
    whole = Repeated(first, (height, first.shape[1]))
    if rows_by_columns(problem):
        whole = Repeated(transposed(problem, whole.whole()), problem.operand_shapes[0])
    return [whole, *others], period, low, high


class BoundedData(GpuData):
    """See the module."""

    def __init__(self, driver: Driver, work: DeviceWork, problem: Problem, made: HostData) -> None:
        super().__init__(driver, problem)
        self._work, self._made = work, made
        self._size, self._result_size = (
            STORAGE[one].itemsize for one in (problem.dtype, problem.result_dtype)
        )
        self._height, self._width = _size(problem)
        self._stored: list[list[Repeated]] = []
        self._kept: list[tuple[int, Array]] = []
        """Addresses and values of bounds, and of what turns put into operands."""
        self._round = 0
        self._turns = self._keep(made.contents), self._keep(made.low), self._keep(made.high)
        """What turns put into the first operand, and its bounds, on the device."""
        size = made.bounded * self._width * self._result_size
        low_at, high_at = (self.buffer(size).address for _ in range(2))
        self._put(
            "usual values", made.usual, 0, Within(low_at, high_at, self._width, made.bounded, made.step)
        )
        self._turn()
        low_at, high_at = self._keep(made.repeated_low), self._keep(made.repeated_high)
        name = f"rows that repeat after {made.period:,}"
        within = Within(low_at, high_at, self._width, made.period, 0)
        self._put(name, made.repeating, SKEW_BYTES, within)
        driver.synchronize()

    def _keep(self, values: Array) -> int:
        """Copies values to the device. Returns their address there."""
        for address, kept in self._kept:
            if kept is values:
                return address
        address = self.buffer(values.nbytes).address
        self._driver.copy_in(address, values.tobytes())
        self._kept.append((address, values))
        return address

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
        _, places, length = self._made.contents.shape
        for place, at in enumerate(self._made.changing):
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
            for at, values in zip(
                self._made.changing, self._made.contents[self._round % _ROUNDS], strict=True
            ):
                whole.reshape(-1)[at : at + len(values)] = values
        return whole.tobytes()

    def renew(self) -> None:
        self._round += 1
        self._turn()
        self.sets[0].out.poison()

    def changes(self, count: int) -> list[Launches]:
        """Of values that `renew` replaces."""
        first, length = self.sets[0].inputs[0].address, self._made.contents.shape[-1]
        return [
            (self._work.negation(self.problem, at, first + at * self._size, length),)
            for at in itertools.islice(itertools.cycle(self._made.changing), count)
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
