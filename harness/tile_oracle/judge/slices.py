"""Slices: classes of problems (such as depthwise or 3D), by which sets and results are broken down."""

from __future__ import annotations

from collections.abc import Iterable

from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem


def slices_of(problem: Problem) -> tuple[str, ...]:
    """The slices of a problem, in its operation's order. A problem may have several slices, or none."""
    slices = operation_named(problem.op).slices
    return tuple(name for name, belongs in slices.items() if belongs(problem))


def slice_names(problems: Iterable[Problem]) -> tuple[str, ...]:
    """All slices of the operations of these problems, in the operations' order."""
    ops = dict.fromkeys(problem.op for problem in problems)
    return tuple(dict.fromkeys(name for op in ops for name in operation_named(op).slices))
