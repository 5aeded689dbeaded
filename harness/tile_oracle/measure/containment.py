"""Contains a worker on this machine: namespaces and limits.

A worker runs untrusted code. Where the system allows it, its processes run in their own namespaces (no
signals to outside, no network). Everywhere they have resource limits, and the guardian watches their memory
and number. `tile-oracle doctor` shows what is available.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tile_oracle.errors import TargetError
from tile_oracle.targets.cpu_info import memory_available_bytes
from tile_oracle.targets.target import INTERPRET

VARIABLE = "TILE_ORACLE_CONTAINMENT"
"""Environment variable: `auto` (the default), `full` (namespaces also for GPUs) or `limits` (no
namespaces)."""
_WORDS = ("auto", "full", "limits")

_MEMORY_SHARE = 0.9
_LEAST_MEMORY_BYTES = 1 << 30
_FILE_BYTES, _FILE_SHARE = 16 << 30, 0.5
_MOST_TASKS = 1000
_STOPPED_S = 5.0


@dataclass(frozen=True)
class Containment:
    """How a worker is contained.

    namespaces: whether to request namespaces; the guardian does without them if the system refuses.
    memory_bytes: memory limit of all its processes together; 0 for no limit, since a GPU driver maps address
    space without memory.
    file_bytes: the largest file that it may write.
    most_tasks: limit of its processes and threads.
    stopped_s: how long the harness may be stopped before the worker is killed.
    """

    namespaces: bool
    memory_bytes: int
    file_bytes: int = _FILE_BYTES
    most_tasks: int = _MOST_TASKS
    stopped_s: float = _STOPPED_S

    def settings(self) -> dict[str, Any]:
        """Returns the containment part of the guardian's settings."""
        limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": self.file_bytes}
        if self.memory_bytes:
            limits["RLIMIT_DATA"] = self.memory_bytes
        return {**asdict(self), "limits": limits}


def containment_for(target: str, folder: Path | None = None) -> Containment:
    """Returns the containment for a worker of a target. folder: where the session writes.

    By default only targets on the CPU get namespaces, because a GPU driver may not work in them;
    TILE_ORACLE_CONTAINMENT=full requests them for GPUs too. Raises TargetError for an unknown value.
    """
    word = os.environ.get(VARIABLE) or "auto"
    if word not in _WORDS:
        raise TargetError(f"{VARIABLE}={word}: must be one of {', '.join(_WORDS)}")
    on_cpu = target in ("cpu", INTERPRET)
    memory = max(_LEAST_MEMORY_BYTES, int(_MEMORY_SHARE * memory_available_bytes())) if on_cpu else 0
    return Containment(
        namespaces=word == "full" or (word == "auto" and on_cpu),
        memory_bytes=memory,
        file_bytes=min(_FILE_BYTES, int(_FILE_SHARE * _free_bytes(folder or Path.cwd()))),
    )


def _free_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return _FILE_BYTES
