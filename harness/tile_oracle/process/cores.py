"""The number of CPU cores that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Returns the number of cores in the process's affinity mask, which taskset or a cpuset may restrict. A
    container's CPU quota is ignored: it limits time, not cores."""
    return len(os.sched_getaffinity(0))
