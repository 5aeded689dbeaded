"""One problem's data on a GPU, whatever its operation: memory, workspaces, what all kinds of data do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tile_oracle.device.gpu_work import GUARD_BYTE, Buffer, Within
from tile_oracle.device.loaded_run import Launches
from tile_oracle.device.runtime.driver import Driver
from tile_oracle.problem import Problem

SKEW_BYTES = 16
"""The alignment that a kernel may rely on (kernels/gpu/abi.h). The data of some checks begin at this
offset."""


@dataclass(frozen=True)
class OperandSet:
    """Operands of a check, a buffer for the result, and what the result must be.

    name: of the values. expected: the address of all expected values, or of `sample` of them, or bounds.
    """

    name: str
    where: str
    inputs: tuple[Buffer, ...]
    out: Buffer
    expected: int | Within
    sample: int | None = None


class GpuData(ABC):
    """One problem's data on the device. Kernels are timed on the first set."""

    def __init__(self, driver: Driver, problem: Problem) -> None:
        self.problem = problem
        self.sets: list[OperandSet] = []
        self.workspace: Buffer | None = None
        self.timing_workspace: Buffer | None = None
        self._driver = driver
        self._buffers: list[Buffer] = []

    @abstractmethod
    def changed(self) -> bool:
        """Returns whether a kernel has written to operands. Slow. May overwrite the outputs."""

    @abstractmethod
    def renew(self) -> None:
        """Changes the timing operands and the expected result, and poisons the output."""

    @abstractmethod
    def changes(self, count: int) -> Sequence[Launches]:
        """Launches, `count` times, that change timed operands; the expected result, too, or it is right again
        after `renew`."""

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
        """Returns whether the workspace for timing is large enough."""
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
