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

from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem

MARGIN = 1.25
FEWER_PRODUCTS_OF_MATRICES = 8 / 7
"""One level of Strassen's algorithm."""


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
        peak = self.flops_per_s.get(problem.dtype, 0.0) * MARGIN
        arithmetic = least_flops(problem) / peak if peak else 0.0
        speed = self.memory_bytes_per_s * MARGIN
        memory = max(0, bytes_read(problem) - self.cache_bytes) / speed if speed else 0.0
        return 1e3 * max(arithmetic, memory)


def impossible(problem: Problem, limits: Limits, latency_ms: float) -> str | None:
    """Why a latency is impossible, or None."""
    least = limits.least_ms(problem)
    if latency_ms >= least:
        return None
    return (
        f"{latency_ms:.3g} ms per run is faster than the device can be: at peak rates, the arithmetic or the "
        f"operands' reads take {least:.3g} ms"
    )


def least_flops(problem: Problem) -> float:
    """Operations that any known exact algorithm needs."""
    return _needs(cast("Hashable", problem))[0]


def bytes_read(problem: Problem) -> int:
    """Bytes of the operands that the result depends on."""
    return _needs(cast("Hashable", problem))[1]


@lru_cache(maxsize=64)
def _needs(problem: Any) -> tuple[float, int]:
    """Both of a problem, which are asked for after every kernel."""
    worker = operation_named(problem.op).worker
    return worker.least_flops(problem), worker.bytes_read(problem)
