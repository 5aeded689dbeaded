"""The part of an operation in a worker process: its data, kernel arguments and lower bounds."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from tile_oracle.errors import OperationError
from tile_oracle.operation.registry import operation_named

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tile_oracle.device.check_data import Axis, Columns
    from tile_oracle.device.cpu_data import CpuData
    from tile_oracle.device.factors import FactorAxes
    from tile_oracle.device.gpu_abi import GpuArgs, GpuGemmArgs, LaunchInfo, LaunchPlan
    from tile_oracle.device.gpu_data import GpuData
    from tile_oracle.device.gpu_work import DeviceWork
    from tile_oracle.device.guarded_memory import GuardedBuffer
    from tile_oracle.device.reference import Integers
    from tile_oracle.device.runtime.driver import Driver


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


class OnGpu(Protocol):
    """Implemented by a module with these functions."""

    def host_data(self, problem: Any, seed: int) -> Any:
        """What the host computes for `gpu_data`, perhaps in another process; None: nothing that takes long.
        It can be pickled."""

    def gpu_data(self, driver: Driver, work: DeviceWork, problem: Any, seed: int, made: Any) -> GpuData:
        """Returns a problem's operands and results on the device. made: by `host_data`."""

    def gpu_memory_bytes(self, problem: Any) -> int:
        """Device memory that `gpu_data` needs."""


class NativeOnGpu(OnGpu, Protocol):
    """The same of an operation with kernels in kernels/gpu."""

    def gpu_args(
        self, problem: Any, in0: int, in1: int, out: int, workspace: int, split_k: int
    ) -> GpuArgs | GpuGemmArgs:
        """Returns the argument structure for a problem and the addresses of its data."""

    def plan_launch(self, problem: Any, info: LaunchInfo, compute_units: int) -> LaunchPlan:
        """Grid, splits and workspace. Raises Unlaunchable."""

    def by_definition(self, problem: Any, in0: int, in1: int, out: int) -> tuple[str, ctypes.Structure]:
        """Returns the kernel of kernels/gpu/device_work.hpp that computes the result by its definition, and
        its argument."""

    def ck_tile_members(self, problem: Any) -> Mapping[str, int]:
        """Returns the members of to_ck_problem (kernels/ck_tile/abi.h) that describe the problem."""


def on_gpu(op: str) -> OnGpu:
    """Returns the GPU part of an operation. Raises OperationError when it runs on no GPU."""
    launched = operation_named(op).on_gpu
    if launched is None:
        raise OperationError(f"the operation {op} runs on no GPU: its descriptor needs on_gpu")
    return launched()


def native_on_gpu(op: str) -> NativeOnGpu:
    """Returns the GPU part of an operation that has kernels in kernels/gpu."""
    return cast(NativeOnGpu, on_gpu(op))
