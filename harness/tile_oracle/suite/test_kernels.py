"""One test per pair: the kernel builds, runs, is correct and is timed."""

from __future__ import annotations

import pytest

from tile_oracle.kernel import Kernel
from tile_oracle.plugin import Measure
from tile_oracle.problem import Problem


def test_kernel(problem: Problem, kernel: Kernel, measure: Measure) -> None:
    """Measures the kernel on the problem: passes, skips, fails, or is a known failure. The verdict on the
    model's picks follows at the end of the session."""
    __tracebackhide__ = True
    measurement = measure(problem, kernel)
    status, known = measurement.status, measurement.known_failure
    said = f"{status}: {measurement.detail}" if measurement.detail else status
    if status in ("ok", "untimed"):
        return
    if status in ("unsupported", "noisy"):
        pytest.skip(said)
    if known and status != "device_lost":
        pytest.xfail(f"known since the baseline ({known}): {said}")
    pytest.fail(said, pytrace=False)
