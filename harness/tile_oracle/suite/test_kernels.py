"""One test per pair: the kernel builds, runs, is correct and is timed."""

from __future__ import annotations

from tile_oracle.kernel import Kernel
from tile_oracle.plugin import Measure
from tile_oracle.problem import Problem
from tile_oracle.session.pair_outcome import check_outcome


def test_kernel(problem: Problem, kernel: Kernel, measure: Measure) -> None:
    """Measures the kernel on the problem. The verdict on the model's picks follows at the end of the
    session."""
    check_outcome(measure(problem, kernel))
