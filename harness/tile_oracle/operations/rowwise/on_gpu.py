"""Operations on rows in a worker process with a GPU (see `tile_oracle.operation.on_gpu`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_oracle.device.gpu_bounded import BoundedData, Rows, bounded_memory_bytes
from tile_oracle.device.gpu_work import DeviceWork
from tile_oracle.device.runtime.driver import Driver
from tile_oracle.number_formats import Array, decode, encode
from tile_oracle.operations.rowwise.on_device import Definition, bounds_of
from tile_oracle.operations.rowwise.problem import RowProblem

_PERIOD = 251
"""Rows of the repeating operands: a prime, so that a kernel that reads another row is seen."""
_SAMPLE = 64
_MOST_VALUES = 1 << 22
"""Most values of a reference on the host."""


class RowsOnGpu:
    """The part of an operation on rows. See BoundedRows."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    def gpu_data(self, driver: Driver, work: DeviceWork, problem: RowProblem, seed: int) -> BoundedData:
        """A problem's operands and results on the device."""
        return BoundedData(driver, work, problem, seed, self)

    def gpu_memory_bytes(self, problem: RowProblem) -> int:
        """Device memory that `gpu_data` needs."""
        return bounded_memory_bytes(problem)

    def first(self, problem: RowProblem, random: np.random.Generator, rows: int, *, far: bool) -> Array:
        """Normal deviates; far: eight times as large, around 96."""
        values = random.standard_normal((rows, problem.width), dtype=np.float32)
        return encode(values * np.float32(8) + np.float32(96) if far else values, problem.dtype)

    def others(self, problem: RowProblem, random: np.random.Generator, rows: int | None) -> list[Array]:
        """Weights near 1, if there are any."""
        shapes = problem.operand_shapes[1:-1]
        return [
            encode(random.standard_normal(one, dtype=np.float32) / 4 + 1, problem.dtype) for one in shapes
        ]

    def bounds(
        self, problem: RowProblem, first: Array, others: Sequence[Array], rows: Rows
    ) -> tuple[Array, Array]:
        """The least and the largest right values of some rows."""
        operands = [decode(one, problem.dtype).astype(np.float64) for one in (first, *others)]
        low, high = bounds_of(self._definition(operands), problem.dtype)
        return encode(low, problem.dtype), encode(high, problem.dtype)

    def period(self, problem: RowProblem) -> int:
        """After how many rows the repeating operands repeat."""
        return max(1, min(_PERIOD, _MOST_VALUES // problem.width))

    def sample(self, problem: RowProblem) -> int:
        """The number of rows whose bounds are computed for timed runs."""
        return max(1, min(_SAMPLE, _MOST_VALUES // problem.width))
