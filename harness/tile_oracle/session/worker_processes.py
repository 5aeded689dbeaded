"""Finds the local worker processes of pytest-xdist in /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BOOTSTRAP = b"sys.stdin.readline"
"""Part of the command line of every local worker: execnet sends the rest of the program to its stdin."""


def worker_processes() -> list[int]:
    """The process ids of the local workers started by this process, including those still starting."""
    parent = str(os.getpid())
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if _stat(folder)[1] == parent and _BOOTSTRAP in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return sorted(found)


def state_of(pid: int) -> str:
    """A process's state letter: T for stopped by a signal, t by a debugger; "" when it is gone."""
    with suppress(OSError):
        return _stat(Path(f"/proc/{pid}"))[0]
    return ""


def _stat(folder: Path) -> list[str]:
    """The fields of /proc/PID/stat from the process state on: state, parent, ..."""
    return (folder / "stat").read_text().rpartition(")")[2].split()
