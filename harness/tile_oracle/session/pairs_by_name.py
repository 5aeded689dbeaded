"""Applies pytest's -k to pairs in a replay, where one test covers all kernels of a problem."""

from __future__ import annotations

from tile_oracle.kernel import Kernel
from tile_oracle.problem import Problem
from tile_oracle.session.pair_id import pair_id
from tile_oracle.session.plan import Plan
from tile_oracle.session.pytest_private import Expression


class PairsByName:
    """The pairs of a plan that `-k EXPRESSION` would select if every pair were a test."""

    def __init__(self, plan: Plan, expression: str) -> None:
        self._plan = plan
        self._expression: Expression | None = None
        if expression.strip():
            try:
                self._expression = Expression.compile(expression)
            except Exception:  # pytest itself reports parse errors
                self._expression = None
        self._known: dict[str, tuple[Kernel, ...]] = {}

    @property
    def chooses(self) -> bool:
        """Whether there is an expression."""
        return self._expression is not None

    def kernels(self, problem: Problem) -> tuple[Kernel, ...]:
        """Returns the requested kernels of a problem, in the plan's order."""
        found = self._known.get(problem.id)
        if found is None:
            asked = self._plan.asked(problem)
            found = asked if self._expression is None else self._chosen(self._expression, problem, asked)
            self._known[problem.id] = found
        return found

    @staticmethod
    def _chosen(expression: Expression, problem: Problem, asked: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        def chosen(kernel: Kernel) -> bool:
            name = f"tile_oracle::test_problem, test_kernel[{pair_id(problem, kernel)}]".lower()

            def is_named(word: str, /, **_: str | int | bool | None) -> bool:
                return word.lower() in name

            return expression.evaluate(is_named)

        return tuple(kernel for kernel in asked if chosen(kernel))
