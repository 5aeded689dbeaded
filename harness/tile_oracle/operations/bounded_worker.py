"""What the workers' parts of operations have in common whose results are right within bounds."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tile_oracle.device.bounded_rows import BoundedRows
from tile_oracle.device.cpu_bounded import BoundedCpuData
from tile_oracle.device.gpu_bounded import BoundedData, HostData, bounded_memory_bytes, host_data
from tile_oracle.device.gpu_work import DeviceWork
from tile_oracle.device.runtime.driver import Driver
from tile_oracle.problem.number_formats import Array, encode

Integers = npt.NDArray[np.int32]


class BoundedWorker(BoundedRows, Protocol):
    """Base of the part of an operation in a worker process. See OnDevice and OnGpu."""

    def cpu_data(self, problem: Any, seed: int) -> BoundedCpuData:
        """Operands and results for the target cpu."""
        return BoundedCpuData(problem, seed, self)

    def host_data(self, problem: Any, seed: int) -> HostData:
        """What the host computes for `gpu_data`."""
        return host_data(problem, seed, self)

    def gpu_data(
        self, driver: Driver, work: DeviceWork, problem: Any, seed: int, made: HostData
    ) -> BoundedData:
        """Returns a problem's operands and results on a GPU."""
        return BoundedData(driver, work, problem, made)

    def gpu_memory_bytes(self, problem: Any) -> int:
        """Device memory that `gpu_data` needs."""
        return bounded_memory_bytes(problem, self)


def launch_arguments(addresses: str, numbers: str, *more: tuple[str, Any]) -> type[ctypes.Structure]:
    """Returns the type of the argument of `to_launch`: addresses, 64-bit integers, and other members."""
    members: list[tuple[str, Any]] = [(name, ctypes.c_void_p) for name in addresses.split()]
    members += [(name, ctypes.c_int64) for name in numbers.split()]
    return type("Args", (ctypes.Structure,), {"_fields_": [*members, *more]})


def integers(random: np.random.Generator, ends: tuple[int, int], shape: int | Sequence[int]) -> Integers:
    """Returns uniform integers from the first of `ends` to the last."""
    return random.integers(ends[0], ends[1] + 1, shape, dtype=np.int32)


def stored(values: Integers, dtype: str, *powers: int | Integers) -> Array:
    """Returns integers times powers of two, in the storage format. (np.ldexp of all values is slow.)"""
    exact = values.astype(np.float32)
    for one in powers:
        exact *= np.ldexp(np.float32(1), one)
    return encode(exact, dtype)


def signs(random: np.random.Generator, rows: int) -> Integers:
    """Returns -1 or 1 for each row, (rows, 1)."""
    return 2 * integers(random, (0, 1), (rows, 1)) - 1


def folded(values: Integers, half: int, sign: int = 1) -> Integers:
    """Repeats the first `half` along the last axis, times `sign`; returns the array."""
    values[..., half : 2 * half] = sign * values[..., :half]
    return values


def half_of_depths(depths: int, block: int = 1) -> int:
    """Returns how many depths far operands have twice: whole blocks if there are two."""
    return depths // (2 * block) * block or depths // 2


def operand_a(random: np.random.Generator, most: int, shape: tuple[int, int], half: int) -> Integers:
    """Returns integers of A, (rows, depths): uniform, or with `half`, of a row with one sign and large, and
    its first `half` depths twice."""
    if not half:
        return integers(random, (-most, most), shape)
    return folded(integers(random, (most // 2 + 1, most), shape) * signs(random, shape[0]), half)


def operand_b(
    random: np.random.Generator, ends: tuple[int, int], shape: tuple[int, int], half: int
) -> Integers:
    """Returns integers of B, (rows, depths): uniform, or with `half` such that products with `operand_a`
    cancel: the first `half` depths, of a row with one sign, have the opposite one when they repeat, up to
    -1, 0 or 1. ends: then the least size, and the largest of all."""
    rows, (least, most) = shape[0], ends
    values = integers(random, (-most, most), shape)
    values[:, :half] = integers(random, (least, most - 1), (rows, half)) * signs(random, rows)
    folded(values, half, -1)[:, half : 2 * half] += integers(random, (-1, 1), (rows, half))
    return values
