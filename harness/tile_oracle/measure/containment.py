"""What a worker is contained with on this machine: namespaces, a control group, limits.

A worker runs code that nobody has checked. Where the system allows it, its processes are in namespaces of
their own (no signals to anything outside, no network) and in a control group; elsewhere limits of the
process and the guardian's own watch take their place. `tile-oracle doctor` says what is there.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.errors import TargetError
from tile_oracle.target.cpu_info import memory_available_bytes

VARIABLE = "TILE_ORACLE_CONTAINMENT"
"""Environment variable: `auto` (the default), `full` (namespaces for GPUs, too) or `limits` (none at all)."""
_WORDS = ("auto", "full", "limits")

_MEMORY_SHARE = 0.9
_LEAST_MEMORY_BYTES = 1 << 30
_FILE_BYTES, _FILE_SHARE = 16 << 30, 0.5
_MOST_TASKS = 1000
_STOPPED_S = 5.0
_CGROUPS = Path("/sys/fs/cgroup")
_numbers = itertools.count()


@dataclass(frozen=True)
class Containment:
    """How a worker is held.

    namespaces: asked for; the guardian goes without where the system refuses. memory_bytes: what its
    processes may have together, 0 for any amount (a GPU's driver maps what is no memory). file_bytes: the
    largest file that it may write. most_tasks: its processes and threads. stopped_s: how long it may keep
    the harness from running. cgroup: folder of a control group made for it, or None.
    """

    namespaces: bool
    memory_bytes: int
    file_bytes: int = _FILE_BYTES
    most_tasks: int = _MOST_TASKS
    stopped_s: float = _STOPPED_S
    cgroup: Path | None = None

    def settings(self) -> dict[str, Any]:
        """The part of the guardian's settings that says how the worker is held."""
        limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": self.file_bytes}
        if self.memory_bytes:
            limits["RLIMIT_DATA"] = self.memory_bytes
        return {
            "namespaces": self.namespaces,
            "memory_bytes": self.memory_bytes,
            "most_tasks": self.most_tasks,
            "stopped_s": self.stopped_s,
            "cgroup": str(self.cgroup) if self.cgroup is not None else "",
            "limits": limits,
        }


def wish() -> str:
    """What the environment variable asks for. Raises TargetError for a word that it does not have."""
    word = os.environ.get(VARIABLE) or "auto"
    if word not in _WORDS:
        raise TargetError(f"{VARIABLE}={word}: must be one of {', '.join(_WORDS)}")
    return word


def containment_for(target: str, folder: Path | None = None) -> Containment:
    """How a worker of a target is held from now on. folder: where the session writes.

    Namespaces for the target `cpu`, and for GPUs where TILE_ORACLE_CONTAINMENT=full asks for them: a GPU's
    driver may need the machine's own. Raises TargetError for a wrong TILE_ORACLE_CONTAINMENT.
    """
    word = wish()
    on_cpu = target == "cpu"
    memory = max(_LEAST_MEMORY_BYTES, int(_MEMORY_SHARE * memory_available_bytes())) if on_cpu else 0
    return Containment(
        namespaces=word == "full" or (word == "auto" and on_cpu),
        memory_bytes=memory,
        file_bytes=min(_FILE_BYTES, int(_FILE_SHARE * _free_bytes(folder or Path.cwd()))),
        cgroup=_make_cgroup(memory) if word != "limits" else None,
    )


def _free_bytes(folder: Path) -> int:
    try:
        there = os.statvfs(folder)
    except OSError:
        return _FILE_BYTES
    return there.f_bavail * there.f_frsize


def own_cgroup(root: Path = _CGROUPS) -> Path | None:
    """The folder of this process's group in the hierarchy of version 2, or None."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                folder = root / line[3:].lstrip("/")
                return folder if (folder / "cgroup.procs").exists() else None
    return None


def why_no_cgroup(group: Path | None) -> str:
    """What keeps us from making groups with limits below this one, or ""."""
    if group is None:
        return "control groups of version 2 are not mounted"
    try:
        passed_on = (group / "cgroup.subtree_control").read_text().split()
    except OSError as error:
        return f"{group}: {error.strerror}"
    missing = [name for name in ("memory", "pids") if name not in passed_on]
    if missing:
        return f"{group} passes on no {' and '.join(missing)} controller"
    return "" if os.access(group, os.W_OK) else f"{group} cannot be written"


def _make_cgroup(memory_bytes: int) -> Path | None:
    """A new group with limits for one worker, or None where there can be none."""
    group = own_cgroup()
    if group is None or why_no_cgroup(group):
        return None
    made = group / f"tile-oracle-{os.getpid()}-{next(_numbers)}"
    try:
        made.mkdir()
        (made / "pids.max").write_text(str(_MOST_TASKS))
        if memory_bytes:
            (made / "memory.max").write_text(str(memory_bytes))
    except OSError:
        with suppress(OSError):
            made.rmdir()
        return None
    return made
