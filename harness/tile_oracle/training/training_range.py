"""The training range of a model. Outside of it the model extrapolates.

Trees predict a constant beyond the last split, so rankings outside of the training range are unreliable. A
problem is outside if its kind was not trained on, if one of its dimensions is below the smallest or above the
largest trained value, or if a power of two up to 8 divides all trained values but not this one (odd
channels).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.errors import ProblemError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.aliases import Aliases
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import kernels_trained_on
from tile_oracle.operation import operation_named
from tile_oracle.problem import Kind, Problem, kind_text, problem_from_id
from tile_oracle.training.trained_on import trained_on

_LARGEST_MULTIPLE = 8


@dataclass(frozen=True)
class NumberRange:
    """The trained values of one dimension. multiple: the largest power of two, at most 8, that divides
    all."""

    low: int
    high: int
    multiple: int

    def outside(self, name: str, value: int) -> str:
        """Returns why a value is outside, or ""."""
        if not self.low <= value <= self.high:
            trained = f"{self.low} to {self.high}" if self.low < self.high else f"{self.low} alone"
            return f"{name} = {value}, trained on {trained}"
        if value % self.multiple:
            return f"{name} = {value}, trained on multiples of {self.multiple}"
        return ""


@dataclass(frozen=True)
class TrainingRange:
    """What a model was trained on. numbers: kind of problem -> dimension -> range. kernels: names."""

    numbers: Mapping[Kind, Mapping[str, NumberRange]]
    kernels: frozenset[str]
    aliases: Aliases

    @classmethod
    def of(cls, folder: Path) -> TrainingRange | None:
        """Returns the range of the model in a folder; None if the folder does not name its training problems.

        Raises ModelError for a folder that cannot be read.
        """
        numbers = _numbers(frozenset(trained_on(folder).problems))
        if not numbers:
            return None
        aliases = read_spec(folder).aliases
        return cls(numbers, kernels_trained_on(folder) | frozenset(aliases.representative), aliases)

    def problem_outside(self, problem: Problem) -> tuple[str, ...]:
        """Returns the reasons why a problem is outside of the training range; empty if it is inside."""
        numbers = self.numbers.get(problem.kind)
        if numbers is None:
            trained = ", ".join(sorted(map(kind_text, self.numbers)))
            return (f"{kind_text(problem.kind)}, trained on {trained}",)
        found = (of.outside(name, getattr(problem, name)) for name, of in numbers.items())
        return tuple(reason for reason in found if reason)

    def kernel_outside(self, name: str) -> str:
        """Returns why a kernel's prediction does not come from its own measurements, or ""."""
        if not self.kernels or name in self.kernels:
            return ""
        stands, _ = self.aliases.stand_in(name, parse_kernel_name(name))
        if stands != name:
            return f"never measured, predicted as {stands}"
        return "never measured, predicted by its features"


@lru_cache(maxsize=8)
def _numbers(ids: frozenset[str]) -> dict[Kind, dict[str, NumberRange]]:
    values: dict[Kind, list[Problem]] = {}
    for text in ids:
        try:
            problem = problem_from_id(text)
        except ProblemError:
            continue  # of an operation that is not installed here
        values.setdefault(problem.kind, []).append(problem)
    return {kind: _of_kind(kind, problems) for kind, problems in values.items()}


def _of_kind(kind: Kind, problems: Sequence[Problem]) -> dict[str, NumberRange]:
    found = {}
    for name in operation_named(kind.op).free_fields:
        numbers = [value for problem in problems if type(value := getattr(problem, name)) is int]
        if len(numbers) == len(problems):
            divisor = math.gcd(*numbers, _LARGEST_MULTIPLE)
            found[name] = NumberRange(min(numbers), max(numbers), divisor)
    return found
