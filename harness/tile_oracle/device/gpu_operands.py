"""One problem's data on a GPU: the operands of every check and the expected results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tile_oracle.device.check_data import Pattern, dense, mantissa
from tile_oracle.device.gpu_work import GUARD_BYTE, GUARD_BYTES, Buffer, DeviceWork, operand_bytes
from tile_oracle.device.runtime.driver import Driver, Launch
from tile_oracle.device.stray_values import POISON_BYTE
from tile_oracle.number_formats import STORAGE
from tile_oracle.problem import Problem

SKEW_BYTES = 16
"""The alignment that a kernel may rely on (kernels/gpu/abi.h). The data of some checks begin at this
offset."""
_SAMPLE = 1 << 18
"""Number of values that a precision check compares. The faults it looks for show everywhere."""


@dataclass(frozen=True)
class OperandSet:
    """Operands of a check, a buffer for the result, and the expected result: all values, or `sample`
    values."""

    pattern: Pattern
    where: str
    inputs: tuple[Buffer, Buffer]
    out: Buffer
    expected: Buffer
    sample: int | None


class Operands:
    """One problem's data on the device: the operands of every check and the expected results.

    Kernels are timed on the first set. Its columns are negated between batches, and the expected result with
    them, so that no earlier result is correct.
    """

    def __init__(self, driver: Driver, work: DeviceWork, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._driver, self._work, self._seed = driver, work, seed
        self._buffers: list[Buffer] = []
        self._bytes = operand_bytes(problem)
        self.workspace: Buffer | None = None
        self.timing_workspace: Buffer | None = None
        self._round = 0
        self.sets = [self._set(dense(problem), 0, None)]
        skewed: Buffer | None = None
        for pattern in mantissa(problem):
            self.sets.append(self._set(pattern, SKEW_BYTES, _SAMPLE, skewed))
            skewed = self.sets[-1].out
        driver.synchronize()

    def _set(self, pattern: Pattern, skew: int, sample: int | None, out: Buffer | None = None) -> OperandSet:
        # NaN around the inputs: a kernel that reads outside them gets a wrong result.
        first, second = (self.buffer(self._bytes[i], POISON_BYTE, skew) for i in (0, 1))
        out = out or self.buffer(self._bytes[2], skew=skew)
        size = STORAGE[self.problem.result_dtype].itemsize
        expected = self.buffer(self._bytes[2] if sample is None else min(self._bytes[2], sample * size))
        self._work.fill(self.problem, pattern, self._seed, first.address, second.address)
        self._work.reference(self.problem, first.address, second.address, expected.address, sample)
        where = f"{skew} bytes beyond a 256-byte boundary" if skew else "at 256-byte boundaries"
        return OperandSet(pattern, where, (first, second), out, expected, sample)

    def changed(self) -> bool:
        """Whether operands no longer have the expected results: a kernel has written to them. Overwrites the
        outputs. Takes as long as making the expected results."""
        return not all(
            self._work.gives(
                self.problem,
                checked.inputs[0].address,
                checked.inputs[1].address,
                checked.out.address,
                checked.expected.address,
                checked.sample,
            )
            for checked in self.sets
        )

    def renew(self) -> None:
        """Changes the timing operands and the expected result, and poisons the output."""
        timed = self.sets[0]
        self._round += 1
        seed = self._seed + self._round
        self._work.negate_columns(self.problem, seed, timed.inputs[1].address, timed.expected.address)
        timed.out.poison()

    def sign_flips(self, count: int) -> list[Launch]:
        """Launches that flip the signs of `count` elements of the timed second operand, far apart."""
        values = math.prod(self.problem.operand_shapes[1])
        second = self.sets[0].inputs[1].address
        return [self._work.sign_flip(self.problem, second, values * i // count) for i in range(count)]

    def buffer(self, size_bytes: int, guard: int = GUARD_BYTE, skew: int = 0) -> Buffer:
        buffer = Buffer(self._driver, size_bytes, guard, skew)
        self._buffers.append(buffer)
        return buffer

    def exact_workspace(self, size_bytes: int) -> Buffer | None:
        """Workspace for a check, exactly as large as the kernel may use; None for a kernel without one.

        Keeps only one: the many sizes of a pool may together exceed the memory.
        """
        if self.workspace is not None and self.workspace.size_bytes != size_bytes:
            old, self.workspace = self.workspace, None
            self._give_back(old)
        if size_bytes and self.workspace is None:
            self.workspace = self.buffer(size_bytes)
        return self.workspace

    def fits_timing(self, size_bytes: int) -> bool:
        """Whether the workspace for timing is large enough."""
        return size_bytes == 0 or (
            self.timing_workspace is not None and self.timing_workspace.size_bytes >= size_bytes
        )

    def ample_workspace(self, size_bytes: int) -> int:
        """Address of the workspace for timing, or 0. All kernels share it; it only grows."""
        if not self.fits_timing(size_bytes):
            if self.timing_workspace is not None:
                old, self.timing_workspace = self.timing_workspace, None
                self._give_back(old)
            self.timing_workspace = self.buffer(size_bytes)
        return self.timing_workspace.address if size_bytes and self.timing_workspace is not None else 0

    def _give_back(self, buffer: Buffer) -> None:
        self._buffers.remove(buffer)
        buffer.close()

    def close(self) -> None:
        self._driver.synchronize()
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()


def memory_needed_bytes(problem: Problem) -> int:
    """Operands, outputs and expected results of up to three sets, with guard zones."""
    sets = 1 + len(mantissa(problem))
    return sets * problem.bytes + 4 * sets * _SAMPLE + 16 * GUARD_BYTES + operand_bytes(problem)[2]
