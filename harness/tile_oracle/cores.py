"""How many CPU cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Those that it may be scheduled on: under taskset or in a cpuset fewer than the machine has.
    A container's CPU quota is not among them: it limits time, not cores."""
    return len(os.sched_getaffinity(0))
