"""No kernel is faster than the device's arithmetic and memory allow: a lower bound for the time of one run.

The bound is meant to be impossible to pass, not hard to reach. Only products inside the image count;
where a filter has several taps a kernel may use an algorithm with a quarter of the multiplications
(Winograd's F(4x4, 3x3), Lavin and Gray 2016); only operand bytes that must be read count, and of them
only what does not fit the caches; and peaks are taken with a margin (`MARGIN`) above the published ones.
A figure below the bound means that the work was not done, or that the clock is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem

MARGIN = 1.25
FEWER_PRODUCTS_OF_MATRICES = 8 / 7
"""Strassen's, once."""


@dataclass(frozen=True)
class Limits:
    """What a device can do at most; an empty mapping and 0 where it is not known.

    flops_per_s: dtype of the operands -> operations a second. cache_bytes: of all caches.
    """

    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_per_s: float = 0.0
    cache_bytes: int = 0

    def least_ms(self, problem: Problem) -> float:
        """No run takes less, in milliseconds; 0 where nothing is known."""
        peak = self.flops_per_s.get(problem.dtype, 0.0) * MARGIN
        arithmetic = least_flops(problem) / peak if peak else 0.0
        speed = self.memory_bytes_per_s * MARGIN
        memory = max(0, bytes_read(problem) - self.cache_bytes) / speed if speed else 0.0
        return 1e3 * max(arithmetic, memory)


def impossible(problem: Problem, limits: Limits, latency_ms: float) -> str | None:
    """Why a latency cannot be, or None."""
    least = limits.least_ms(problem)
    if latency_ms >= least:
        return None
    return (
        f"{latency_ms:.3g} ms a run is faster than the device can be: at its peak the arithmetic, or the way "
        f"of the operands from memory, takes {least:.3g} ms"
    )


def least_flops(problem: Problem) -> float:
    """Operations that every algorithm known for exact results needs."""
    return operation_named(problem.op).worker.least_flops(problem)


def bytes_read(problem: Problem) -> int:
    """Bytes of the operands that the result depends on."""
    return operation_named(problem.op).worker.bytes_read(problem)
