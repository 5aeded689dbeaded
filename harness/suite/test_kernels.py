"""One test a pair: the kernel builds, runs, is correct and is timed."""

from __future__ import annotations

from harness.kernel import GroupedConvKernel
from harness.plugin import Measure, check_outcome
from harness.problem import GroupedConvProblem


def test_kernel(problem: GroupedConvProblem, kernel: GroupedConvKernel, measure: Measure) -> None:
    """The kernel is measured on the problem; the verdict on the model's picks comes at the session's end."""
    check_outcome(measure(problem, kernel))
