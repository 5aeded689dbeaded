"""What a worker process knows of an operation: its data, how kernels are called, what no kernel can beat."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tile_oracle.device.cpu_data import CpuData
    from tile_oracle.device.guarded_memory import GuardedBuffer


class OnDevice(Protocol):
    """A module with these functions is one."""

    def cpu_data(self, problem: Any, seed: int) -> CpuData:
        """Operands, results and how they are compared, on the target cpu."""

    def cpu_arguments(
        self, problem: Any, operands: Sequence[GuardedBuffer], out: GuardedBuffer
    ) -> ctypes.Structure:
        """What `to_launch` of a kernel for the cpu takes. It has a member `workspace`, an address."""

    def least_flops(self, problem: Any) -> float:
        """Operations that every algorithm known for exact results needs."""

    def bytes_read(self, problem: Any) -> int:
        """Bytes of the operands that the result depends on."""
