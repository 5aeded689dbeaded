"""The part of an operation in a worker process: its data, kernel arguments and lower bounds."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from tile_oracle.operation.registry import operation_named

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tile_oracle.device.check_data import Axis, Columns
    from tile_oracle.device.cpu_data import CpuData
    from tile_oracle.device.factors import FactorAxes
    from tile_oracle.device.guarded_memory import GuardedBuffer
    from tile_oracle.device.reference import Integers


class OnDevice(Protocol):
    """Implemented by a module with these functions."""

    def cpu_data(self, problem: Any, seed: int) -> CpuData:
        """Operands, expected results and their comparison, for the target cpu."""

    def cpu_arguments(
        self, problem: Any, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """Returns the argument of `to_launch` of a cpu kernel. It has a member `workspace`, an address."""


class SumsOfProducts(OnDevice, Protocol):
    """An operation whose results are sums of products of two operands. It can be checked exactly, with
    integers (`tile_oracle.device.cpu_data.ProblemData`)."""

    def fold_axes(self, problem: Any) -> tuple[Axis, Axis]:
        """Returns the axis of each operand along which the second half of the depth repeats the first."""

    def columns_of_second(self, problem: Any) -> Columns:
        """Returns the elements of the second operand that determine a column of the result."""

    def factor_axes(self, problem: Any) -> FactorAxes:
        """Returns which elements of operands and result belong to a row, a column and a depth."""

    def without_padding(self, problem: Any) -> Sequence[npt.NDArray[np.int64]]:
        """Returns the positions on each axis of the second operand whose elements are multiplied by elements
        of the first operand only, never by padding."""

    def elements_together(self, problem: Any) -> int:
        """Returns how many successive elements of the first operand a kernel may multiply by zeros where it
        needs but
        some of them: all channels of a pixel if groups may be merged into one product with zeros, else 1."""

    def exact_output(self, problem: Any, first: Integers, second: Integers) -> npt.NDArray[np.float32]:
        """Returns the whole output. It is exact because all sums stay below 2^24."""


def sums_of_products(op: str) -> SumsOfProducts:
    """Returns the worker's part of an operation whose results are sums of products."""
    return cast(SumsOfProducts, operation_named(op).worker)
