"""Contains a worker on this machine: namespaces, a control group, limits.

A worker runs untrusted code. Where the system allows it, its processes run in their own namespaces (no
signals to outside, no network) and in a control group. Elsewhere, resource limits and the guardian's
monitoring take their place. `tile-oracle doctor` shows what is available.
"""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import suppress
from dataclasses import dataclass
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
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids")
_LEAF = "tile-oracle-session"
_DELEGATED = "user.delegate"
_MOVES = 10
_numbers = itertools.count()


@dataclass(frozen=True)
class Containment:
    """How a worker is contained.

    namespaces: whether to request namespaces; the guardian does without them if the system refuses.
    memory_bytes: memory limit of all its processes together; 0 for no limit, since a GPU driver maps address
    space without memory.
    file_bytes: the largest file that it may write.
    most_tasks: limit of its processes and threads.
    stopped_s: how long the harness may be stopped before the worker is killed.
    cgroup: folder of a control group made for it, or None.
    """

    namespaces: bool
    memory_bytes: int
    file_bytes: int = _FILE_BYTES
    most_tasks: int = _MOST_TASKS
    stopped_s: float = _STOPPED_S
    cgroup: Path | None = None

    def settings(self) -> dict[str, Any]:
        """Returns the containment part of the guardian's settings."""
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
    """Returns the value of the environment variable. Raises TargetError for an unknown value."""
    word = os.environ.get(VARIABLE) or "auto"
    if word not in _WORDS:
        raise TargetError(f"{VARIABLE}={word}: must be one of {', '.join(_WORDS)}")
    return word


def containment_for(target: str, folder: Path | None = None) -> Containment:
    """Returns the containment for a worker of a target. folder: where the session writes.

    By default only targets on the CPU get namespaces, because a GPU driver may not work in them;
    TILE_ORACLE_CONTAINMENT=full requests them for GPUs too. Raises TargetError for an unknown value.
    """
    word = wish()
    on_cpu = target in ("cpu", INTERPRET)
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
    """Returns the folder of this process's control group (cgroup v2), or None."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                folder = root / line[3:].lstrip("/")
                if folder.name == _LEAF:
                    folder = folder.parent
                return folder if (folder / "cgroup.procs").exists() else None
    return None


def pass_on_controllers(group: Path | None) -> None:
    """Lets groups below a delegated one have limits; does nothing where that is not possible.

    A group that passes controllers on may hold no processes itself. So its processes, those of this session,
    move into a group below it. systemd marks the groups that it leaves to their users, such as those of
    `systemd-run --user --scope -p Delegate=yes`.
    """
    if group is None or not why_no_cgroup(group):
        return
    with suppress(OSError):
        if not {*_CONTROLLERS} <= {*(group / "cgroup.controllers").read_text().split()}:
            return
        if os.getxattr(group, _DELEGATED) != b"1":
            return
        leaf = group / _LEAF
        leaf.mkdir(exist_ok=True)
        for _ in range(_MOVES):  # processes may start others meanwhile
            inside = (group / "cgroup.procs").read_text().split()
            for process in inside:
                with suppress(ProcessLookupError):
                    (leaf / "cgroup.procs").write_text(process)
            try:
                (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return


def why_no_cgroup(group: Path | None) -> str:
    """Returns why no control groups with limits can be made below this one, or ""."""
    if group is None:
        return "cgroup v2 is not mounted"
    try:
        passed_on = (group / "cgroup.subtree_control").read_text().split()
    except OSError as error:
        return f"{group}: {error.strerror}"
    missing = [name for name in _CONTROLLERS if name not in passed_on]
    if missing:
        return f"{group} does not delegate the controllers {' and '.join(missing)}"
    return "" if os.access(group, os.W_OK) else f"{group} cannot be written"


def _make_cgroup(memory_bytes: int) -> Path | None:
    """Makes a control group with limits for one worker; None where that is not possible."""
    group = own_cgroup()
    pass_on_controllers(group)
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
