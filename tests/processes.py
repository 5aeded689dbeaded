"""Processes of tests, and waiting for what they do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST_S = 300.0
"""How long a test waits for what takes seconds at most on an idle machine."""


def run_python(*words: object, timeout: float = LONGEST_S, check: bool = False, **options: Any) -> Any:
    """Run this Python to its end; its output is text. options: env, cwd, input, umask of subprocess.run."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=check, **options)


def wait_until(asked: Callable[[], T]) -> T:
    """Ask until the answer is true, and return it: for what another process or thread does."""
    end = time.monotonic() + LONGEST_S
    while not (answer := asked()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return answer


def state_of(pid: int) -> str:
    """The state of a process as ps shows it, such as R, T and Z; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def has_ended(pid: int) -> bool:
    """Whether a process runs no more. Who started it may not have noticed."""
    return state_of(pid) in ("", "Z", "X")
