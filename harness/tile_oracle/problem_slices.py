"""Slices: classes of problems, for describing problem sets and breaking down results."""

from __future__ import annotations

from collections.abc import Iterable

from tile_oracle.operation import operation_named
from tile_oracle.problem import Problem


def slices_of(problem: Problem) -> tuple[str, ...]:
    """The slices of a problem, in its operation's order. They overlap, and there may be none."""
    slices = operation_named(problem.op).slices
    return tuple(name for name, belongs in slices.items() if belongs(problem))


def slice_names(problems: Iterable[Problem]) -> tuple[str, ...]:
    """All slices of these problems' operations, in the operations' order."""
    ops = dict.fromkeys(problem.op for problem in problems)
    return tuple(dict.fromkeys(name for op in ops for name in operation_named(op).slices))
