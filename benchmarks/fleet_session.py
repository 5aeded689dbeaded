"""A timed session on a fleet, for benchmarks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def session(
    folder: Path, pool: Sequence[str], address: str, devices: int, name: str, budget: str = "500ms"
) -> float:
    """Seconds of a session with many.csv on so many devices.

    pool: pytest's options that choose the kernels. budget: time for each kernel.
    """
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--problem-set", "many.csv"),
        *("--target", "cpu", *pool, "--model", "none", "--kernel-budget", budget),
        *("--run-name", name, f"--fleet={address}", f"-n{devices}"),
    ]
    began = time.perf_counter()
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return seconds
