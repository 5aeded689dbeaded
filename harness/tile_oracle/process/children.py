"""Processes that this one starts: their environment, and whether a signal has stopped them."""

from __future__ import annotations

import os
from pathlib import Path

import tile_oracle

_PARENT = str(Path(tile_oracle.__file__).resolve().parent.parent)


def child_environment(**own: str) -> dict[str, str]:
    """Returns this process's environment with a search path on which a child finds this package first. own:
    further variables."""
    search = os.pathsep.join(filter(None, [_PARENT, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": search, **own}


def is_stopped(pid: int) -> bool:
    """Returns whether a signal has stopped the process. False for one under a debugger, or gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["T"]
