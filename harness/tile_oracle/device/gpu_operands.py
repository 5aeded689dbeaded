"""Sums of products on a GPU: operands that are integers, and their exact results."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tile_oracle.device.check_data import Pattern, dense, mantissa
from tile_oracle.device.gpu_data import SKEW_BYTES, GpuData, OperandSet
from tile_oracle.device.gpu_work import GUARD_BYTES, Buffer, DeviceWork, operand_bytes
from tile_oracle.device.not_finite import NOT_FINITE, not_finite, spoilt
from tile_oracle.device.runtime.driver import Driver, Launch
from tile_oracle.device.stray_values import POISON_BYTE
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE, encode

_SAMPLE = 1 << 18
"""Number of values that a precision check compares. The faults it looks for show everywhere."""


class Operands(GpuData):
    """One problem's data on the device: the operands of every check and the expected results.

    Kernels are timed on the first set. Its rows, columns and depths are negated between batches, and the
    expected result with them, so that no earlier result is correct.
    """

    def __init__(self, driver: Driver, work: DeviceWork, problem: Problem, seed: int) -> None:
        super().__init__(driver, problem)
        self._work, self._seed = work, seed
        self._bytes = operand_bytes(problem)
        self._round = 1
        self.sets = [self._set(dense(problem), 0, None)]
        skewed: Buffer | None = None
        for pattern in (*mantissa(problem), not_finite(problem)):
            self.sets.append(self._set(pattern, SKEW_BYTES, _SAMPLE, skewed))
            skewed = self.sets[-1].out
        (self._renewing,) = self.changes(1)
        driver.synchronize()

    def _set(self, pattern: Pattern, skew: int, sample: int | None, out: Buffer | None = None) -> OperandSet:
        # NaN around the inputs: a kernel that reads outside them gets a wrong result.
        first, second = (self.buffer(self._bytes[i], POISON_BYTE, skew) for i in (0, 1))
        out = out or self.buffer(self._bytes[2], skew=skew)
        size = STORAGE[self.problem.result_dtype].itemsize
        expected = self.buffer(self._bytes[2] if sample is None else min(self._bytes[2], sample * size))
        self._work.fill(self.problem, pattern, self._seed, first.address, second.address)
        self._work.scale(self.problem, self._seed, (first.address, second.address))
        if pattern.name == NOT_FINITE:
            self._spoil((first, second))
        self._work.reference(self.problem, first.address, second.address, expected.address, sample)
        where = f"{skew} bytes beyond a 256-byte boundary" if skew else "at 256-byte boundaries"
        return OperandSet(pattern.name, where, (first, second), out, expected.address, sample)

    def _spoil(self, inputs: tuple[Buffer, Buffer]) -> None:
        dtype = self.problem.dtype
        size = STORAGE[dtype].itemsize
        for number, buffer in enumerate(inputs):
            chosen = spoilt(self.problem, number, self._seed)
            stored = encode(chosen.values, dtype)
            # Neighbours in one copy: all channels of a pixel may be thousands.
            begins = np.flatnonzero(np.diff(chosen.places, prepend=-2) != 1)
            for begin, end in pairwise([*begins.tolist(), len(stored)]):
                place = int(chosen.places[begin])
                self._driver.copy_in(buffer.address + place * size, stored[begin:end].tobytes())

    def changed(self) -> bool:
        """Returns whether operands no longer have the expected results: a kernel has written to them.
        Overwrites the outputs. Takes as long as making the expected results."""
        for one in self.sets:
            first, second, out = (buffer.address for buffer in (*one.inputs, one.out))
            if not self._work.gives(self.problem, first, second, out, _address(one), one.sample):
                return True
        return False

    def renew(self) -> None:
        self._round += 1
        self._work.negate_others(self._renewing, self._seed + self._round)
        self.sets[0].out.poison()

    def changes(self, count: int) -> list[tuple[Launch, ...]]:
        timed = self.sets[0]
        addresses = [*(one.address for one in timed.inputs), _address(timed)]
        self._round += count
        seeds = range(self._seed + self._round, self._seed + self._round + count)
        return [tuple(self._work.negations(self.problem, seed, addresses)) for seed in seeds]


def _address(checked: OperandSet) -> int:
    """Returns where the expected values are."""
    assert isinstance(checked.expected, int)
    return checked.expected


def host_data(problem: Problem, seed: int) -> None:
    """Nothing: the device makes operands and results."""


def gpu_data(driver: Driver, work: DeviceWork, problem: Problem, seed: int, made: None) -> Operands:
    """See tile_oracle.operation.on_device.OnGpu."""
    return Operands(driver, work, problem, seed)


def gpu_memory_bytes(problem: Problem) -> int:
    """Operands, outputs and expected results of up to four sets, with guard zones."""
    sets = 2 + len(mantissa(problem))
    return sets * problem.bytes + 4 * sets * _SAMPLE + 24 * GUARD_BYTES + operand_bytes(problem)[2]
