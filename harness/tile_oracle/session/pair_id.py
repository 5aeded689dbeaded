"""Test ids of pairs: making, parsing and choosing them."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache

from tile_oracle.kernel import Kernel
from tile_oracle.kernel.named import SHORT_NAMES
from tile_oracle.operation import operations
from tile_oracle.problem import Problem
from tile_oracle.session.plan import Plan
from tile_oracle.session.pytest_private import Expression


@lru_cache(maxsize=1)
def _pair_in_id() -> re.Pattern[str]:
    known = tuple(operations())
    problems = "|".join(one.id_pattern for one in known)
    kernels = "|".join((SHORT_NAMES, *(one.short_names for one in known)))
    return re.compile(rf"[\[-](?P<problem>{problems})(?:-(?P<kernel>{kernels}))?[\]-]")


def pair_id(problem: Problem, kernel: Kernel) -> str:
    """Returns the text in brackets after a test's name: forward-bf16-n1-...-64x64x64_compv3_intrawave."""
    return f"{problem.id}-{kernel.short_name}"


def pair_of(nodeid: str) -> tuple[str | None, str | None]:
    """Returns the problem's id and the kernel's short name in a test's id; None for a missing part."""
    head, _, tail = nodeid.rpartition("-")
    if tail in _KERNEL_ENDS and (known := _PROBLEM_HEADS.get(head)) is not None:
        return known, tail[:-1]
    match = _pair_in_id().search(nodeid)
    if match is None:
        return None, None
    problem, kernel = match["problem"], match["kernel"]
    if kernel is not None and nodeid.endswith(f"{problem}-{kernel}]"):
        _PROBLEM_HEADS[head] = problem
        _KERNEL_ENDS.add(tail)
    return problem, kernel


# A session parses hundreds of thousands of ids with few problems and few kernels; the pattern takes 17 us.
_PROBLEM_HEADS: dict[str, str] = {}
"""The text before "-KERNEL]" -> the problem that it ends with."""
_KERNEL_ENDS: set[str] = set()
"""Each "KERNEL]" found after a problem."""


class PairsByName:
    """The pairs of a plan that `-k EXPRESSION` would select if every pair were a test: in a replay, one test
    covers all kernels of a problem."""

    def __init__(self, plan: Plan, expression: str) -> None:
        self._plan = plan
        self._expression: Expression | None = None
        if expression.strip():
            with suppress(Exception):  # pytest itself reports parse errors
                self._expression = Expression.compile(expression)
        self._known: dict[str, tuple[Kernel, ...]] = {}

    @property
    def chooses(self) -> bool:
        """Whether there is an expression."""
        return self._expression is not None

    def kernels(self, problem: Problem) -> tuple[Kernel, ...]:
        """Returns the requested kernels of a problem, in the plan's order."""
        if self._expression is None:
            return self._plan.asked(problem)
        if problem.id not in self._known:
            expression, asked = self._expression, self._plan.asked(problem)
            self._known[problem.id] = tuple(one for one in asked if _is_chosen(expression, problem, one))
        return self._known[problem.id]


def _is_chosen(expression: Expression, problem: Problem, kernel: Kernel) -> bool:
    name = f"tile_oracle::test_problem, test_kernel[{pair_id(problem, kernel)}]".lower()

    def is_named(word: str, /, **_: str | int | bool | None) -> bool:
        return word.lower() in name

    return expression.evaluate(is_named)
