"""Processes of tests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def run_python(*words: object, timeout: float = 300, check: bool = False, **options: Any) -> Any:
    """Run this Python to its end; its output is text. options: env, cwd, input, umask of subprocess.run."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=check, **options)
