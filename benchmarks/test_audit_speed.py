"""The audit of the worker's process before and after a kernel, with the operands of a small problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tile_oracle.device.audit import Audit
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

PROBLEM = GroupedConvProblem("forward", "fp32", 2, N=1, C=16, K=16, G=1, Hi=14, Wi=14, Y=3, X=3)


@pytest.fixture
def audit() -> Iterator[Audit]:
    device = CpuDevice()
    device.load(PROBLEM, 1)
    audit = Audit(device.inputs, 0, strict=True)
    audit.note_inputs()
    audit.begin()
    yield audit
    device.idle()


def test_a_kernel_that_changes_nothing(benchmark: Callable[..., Any], audit: Audit) -> None:
    def pair() -> None:
        audit.begin()
        audit.end()

    benchmark(pair)


def test_mapped_files_are_read_again(benchmark: Callable[..., Any], audit: Audit) -> None:
    """As once a problem, when timed runs get their operands."""

    def pair() -> None:
        audit._reader._shape = []
        audit.begin()
        audit.end()

    benchmark(pair)
