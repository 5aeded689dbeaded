"""Problems that are outside of a model's training range, and picks that extrapolate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tile_oracle.problem import Problem

if TYPE_CHECKING:
    from tile_oracle.training.training_range import TrainingRange

RangeOf = Callable[[Problem], "TrainingRange | None"]
"""The training range of the model that picks for a problem; None where no model records one."""


@dataclass(frozen=True)
class Extrapolation:
    """The picks of a model that extrapolate. problems: id -> why the problem is outside of the training
    range. kernels: id -> why the prediction does not come from measurements of the picked kernel."""

    problems: Mapping[str, tuple[str, ...]]
    kernels: Mapping[str, str]

    @property
    def why(self) -> dict[str, str]:
        """Problem id -> all reasons, for every pick that extrapolates."""
        merged = {problem: list(reasons) for problem, reasons in self.problems.items()}
        for problem, reason in self.kernels.items():
            merged.setdefault(problem, []).append(reason)
        return {problem: "; ".join(merged[problem]) for problem in sorted(merged)}

    @property
    def note(self) -> str:
        """The number of picks that extrapolate, with the most common reasons; "" if there are none."""
        parts = []
        if number := len(self.problems):
            fields = Counter(reason.split()[0] for reasons in self.problems.values() for reason in reasons)
            most = ", ".join(f"{name}: {count}" for name, count in fields.most_common(4))
            lie = "problems lie" if number > 1 else "problem lies"
            parts.append(f"{number} {lie} outside the model's training range ({most})")
        if number := len(self.kernels):
            picks = "picks are kernels" if number > 1 else "pick is a kernel"
            parts.append(f"{number} {picks} that the model never saw")
        return "; ".join(parts)


def extrapolating_picks(
    range_of: RangeOf, problems: Iterable[Problem], picks: Mapping[str, str]
) -> Extrapolation:
    """Returns the picks that extrapolate. picks: problem id -> name of the picked kernel."""
    outside, kernels = {}, {}
    for problem in problems:
        of_kind = range_of(problem) if problem.id in picks else None
        if of_kind is not None and (reasons := of_kind.problem_outside(problem)):
            outside[problem.id] = reasons
        if of_kind is not None and (reason := of_kind.kernel_outside(picks[problem.id])):
            kernels[problem.id] = reason
    return Extrapolation(outside, kernels)
