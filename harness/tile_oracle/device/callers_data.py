"""Copies a caller's operands to a GPU for one run of a kernel, and the result to the caller's file."""

from __future__ import annotations

import math
from types import TracebackType

import numpy as np

from tile_oracle.device.base import CheckResult
from tile_oracle.device.gpu_work import GUARD_BYTE, Buffer
from tile_oracle.device.runtime.driver import Driver
from tile_oracle.device.stray_values import POISON_BYTE, nan_count, unwritten
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import STORAGE
from tile_oracle.targets.base import DataFiles


class CallersData:
    """Device memory for a caller's data, between guard zones. A context manager, whose end frees it.

    Every method raises RuntimeFailure when the driver fails.
    """

    def __init__(self, driver: Driver, problem: Problem, files: DataFiles) -> None:
        """Allocates nothing yet. `files`: the operands and the result."""
        self.problem = problem
        self._driver = driver
        self._files = files
        self._buffers: list[Buffer] = []
        self._given: list[bytes] = []

    def __enter__(self) -> CallersData:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for buffer in self._buffers:
            buffer.close()

    def operands(self) -> list[Buffer]:
        """Returns the operands, copied to the device. Their guard zones hold poison, which spoils a result
        that reads them."""
        self._given = [path.read_bytes() for path in (self._files.first, self._files.second)]
        operands = [self._buffer(len(values), POISON_BYTE) for values in self._given]
        for operand, values in zip(operands, self._given, strict=True):
            self._driver.copy_in(operand.address, values)
        return operands

    def output(self) -> Buffer:
        """Returns the memory for the result."""
        size = math.prod(self.problem.operand_shapes[2])
        return self._buffer(size * STORAGE[self.problem.result_dtype].itemsize)

    def workspace(self, size_bytes: int) -> Buffer | None:
        """Returns the memory for a kernel's workspace, if it needs any."""
        return self._buffer(size_bytes) if size_bytes else None

    def take(self, out: Buffer) -> CheckResult:
        """Writes the result into the caller's file. The status is ok, or wrong when values were not
        written."""
        result = self._driver.copy_out(out.address, out.size_bytes)
        missing = unwritten(np.frombuffer(result, STORAGE[self.problem.result_dtype]))
        # A NaN in the caller's data may give any NaN.
        if missing and not self._nan_is_given():
            return CheckResult("wrong", missing)
        self._files.out.write_bytes(result)
        return CheckResult("ok")

    def _nan_is_given(self) -> bool:
        storage = STORAGE[self.problem.dtype]
        return any(nan_count(np.frombuffer(v, storage), self.problem.dtype) for v in self._given)

    def _buffer(self, size_bytes: int, guard: int = GUARD_BYTE) -> Buffer:
        self._buffers.append(Buffer(self._driver, size_bytes, guard))
        return self._buffers[-1]
