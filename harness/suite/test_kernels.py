"""One test a pair: the kernel builds, runs, is correct and is timed."""

from __future__ import annotations

from harness.kernel import Kernel
from harness.plugin import Measure, check_outcome
from harness.problem import Problem


def test_kernel(problem: Problem, kernel: Kernel, measure: Measure) -> None:
    """The kernel is measured on the problem; the verdict on the model's picks comes at the session's end."""
    check_outcome(measure(problem, kernel))
