"""The order in which a problem's kernels are swept: first those that were fast on earlier problems.

Sequential sampling saves most when a fast kernel comes early, because the others are compared with the best
so far. A pool's own order has similar kernels side by side, so the best of a problem may come last.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence

from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement


class KernelOrder:
    """Learns from each swept problem how fast the kernels are. The same measurements give the same order."""

    def __init__(self) -> None:
        self._sums: dict[Kernel, tuple[float, int]] = {}
        self._total, self._count = 0.0, 0

    def ordered(self, kernels: Iterable[Kernel]) -> list[Kernel]:
        """By mean log efficiency, best first. Unknown kernels count as average; equal ones are shuffled, the
        same way each time."""
        average = self._total / self._count if self._count else 0.0

        def key(kernel: Kernel) -> tuple[float, int]:
            total, count = self._sums.get(kernel, (average, 1))
            return -total / count, zlib.crc32(kernel.name.encode())

        return sorted(kernels, key=key)

    def learn(self, swept: Sequence[Measurement], known: Sequence[Measurement] = ()) -> None:
        """Takes note of new measurements of one problem. known: its others."""
        timed = [m for m in swept if m.ok and m.latency_ms > 0]
        best_ms = min((m.latency_ms for m in (*timed, *known) if m.ok and m.latency_ms > 0), default=0.0)
        for m in timed:
            efficiency = math.log(best_ms / m.latency_ms)
            total, count = self._sums.get(m.kernel, (0.0, 0))
            self._sums[m.kernel] = total + efficiency, count + 1
            self._total += efficiency
            self._count += 1
