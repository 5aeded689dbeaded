"""The part of an operation for running its kernels on a GPU. Only a worker process imports it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from tile_oracle.errors import OperationError
from tile_oracle.operation.registry import operation_named

if TYPE_CHECKING:
    from tile_oracle.device.gpu_abi import GpuArgs, GpuGemmArgs, LaunchInfo, LaunchPlan
    from tile_oracle.device.gpu_data import GpuData
    from tile_oracle.device.gpu_work import DeviceWork
    from tile_oracle.device.runtime.driver import Driver


class OnGpu(Protocol):
    """Implemented by a module with these functions."""

    def gpu_data(self, driver: Driver, work: DeviceWork, problem: Any, seed: int) -> GpuData:
        """Returns a problem's operands and results on the device."""

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
