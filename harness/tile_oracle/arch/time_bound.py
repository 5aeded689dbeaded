"""A lower bound for the time of one run, from the device's peak arithmetic and memory bandwidth.

The bound must be impossible to beat; it need not be tight. It counts only products inside the image. For
filters with several taps it allows an algorithm with a quarter of the multiplications (Winograd's F(4x4,
3x3), Lavin and Gray 2016). It counts only operand bytes that must be read and that do not fit the caches, and
it adds a margin (`MARGIN`) to the published peaks. A time below the bound means that the kernel did not do
the work or that the clock is wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from tile_oracle.arch.table import load_arch
from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem

MARGIN = 1.25


@dataclass(frozen=True)
class Limits:
    """Peak rates of a device; an empty mapping and 0 if unknown.

    flops_per_s: dtype of the operands -> operations per second. cache_bytes: total size of the caches.
    """

    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_per_s: float = 0.0
    cache_bytes: int = 0

    def least_ms(self, problem: Problem) -> float:
        """Lower bound for one run in milliseconds; 0 if nothing is known."""
        peak = self.flops_per_s.get(problem.dtype.partition("_")[0], 0.0) * MARGIN
        operations, read = _least_work(cast("Hashable", problem))
        arithmetic = operations / peak if peak else 0.0
        speed = self.memory_bytes_per_s * MARGIN
        memory = max(0, read - self.cache_bytes) / speed if speed else 0.0
        return 1e3 * max(arithmetic, memory)


def gpu_limits(name: str, compute_units: int) -> Limits:
    """Returns the limits of an architecture with a number of compute units; 0 means as many as in the table.

    Without a peak in kernels/arch_specs.json there are no limits.
    """
    arch = load_arch(name)
    if arch.peak is None:
        return Limits()
    hardware = arch.hardware
    clocks = (compute_units or hardware.num_cus) * hardware.max_clock_mhz * 1e6
    flops = {dtype: each * clocks for dtype, each in arch.peak.flops_a_cu_and_clock.items()}
    return Limits(flops, arch.peak.memory_gb_s * 1e9, hardware.cache_bytes)


def impossible(problem: Problem, limits: Limits, latency_ms: float) -> str | None:
    """Returns why a latency is impossible, or None."""
    least = limits.least_ms(problem)
    if latency_ms >= least:
        return None
    return (
        f"{latency_ms:.3g} ms per run is faster than the device can be: at peak rates, the arithmetic or the "
        f"operands' reads take {least:.3g} ms"
    )


@lru_cache(maxsize=64)
def _least_work(problem: Any) -> tuple[float, int]:
    """`Operation.least_work` of a problem, which is asked for after every kernel."""
    return operation_named(problem.op).work_bound(problem)
