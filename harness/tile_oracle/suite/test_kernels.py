"""One test a pair: the kernel builds, runs, is correct and is timed."""

from __future__ import annotations

from tile_oracle.kernel import Kernel
from tile_oracle.plugin import Measure
from tile_oracle.problem import Problem
from tile_oracle.session.pair_outcome import check_outcome


def test_kernel(problem: Problem, kernel: Kernel, measure: Measure) -> None:
    """The kernel is measured on the problem; the verdict on the model's picks comes at the session's end."""
    check_outcome(measure(problem, kernel))
