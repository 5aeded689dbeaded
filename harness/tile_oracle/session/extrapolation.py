"""Problems of a session that are outside of its models' training range, and picks that extrapolate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tile_oracle.problem import Problem
from tile_oracle.session.models import ModelChoice

if TYPE_CHECKING:
    import pandas as pd

    from tile_oracle.training.training_range import TrainingRange


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
        both = {*self.problems, *self.kernels}
        if not both:
            return ""
        parts = []
        if self.problems:
            fields = Counter(reason.split()[0] for reasons in self.problems.values() for reason in reasons)
            most = ", ".join(f"{name} {count}" for name, count in fields.most_common(4))
            parts.append(f"{len(self.problems)} on problems outside of its training ({most})")
        if self.kernels:
            parts.append(f"{len(self.kernels)} of kernels that it never saw")
        return f"{len(both)} picks extrapolate: {', '.join(parts)}"


class Ranges:
    """The training ranges of a choice's models; models that do not record theirs are ignored."""

    def __init__(self, choice: ModelChoice) -> None:
        """Raises ModelError for a model folder that cannot be read."""
        self._of_folder: dict[object, TrainingRange | None] = {}
        self._folders = dict(choice.folders)
        if self._folders:
            from tile_oracle.training.training_range import TrainingRange

            for folder in set(self._folders.values()):
                self._of_folder[folder] = TrainingRange.of(folder)

    def outside(self, problems: Iterable[Problem]) -> dict[str, tuple[str, ...]]:
        """Problem id -> why it is outside of the training range, for the problems that are."""
        found = {}
        for problem in problems:
            of_kind = self._of(problem)
            if of_kind is not None and (reasons := of_kind.problem_outside(problem)):
                found[problem.id] = reasons
        return found

    def of_picks(self, problems: Iterable[Problem], picks: Mapping[str, str]) -> Extrapolation:
        """The picks that extrapolate. picks: problem id -> name of the picked kernel."""
        picked = [problem for problem in problems if problem.id in picks]
        kernels = {}
        for problem in picked:
            of_kind = self._of(problem)
            if of_kind is not None and (reason := of_kind.kernel_outside(picks[problem.id])):
                kernels[problem.id] = reason
        return Extrapolation(self.outside(picked), kernels)

    def _of(self, problem: Problem) -> TrainingRange | None:
        return self._of_folder.get(self._folders.get(problem.kind))


def abstaining(rankings: pd.DataFrame | None, outside: Iterable[str]) -> pd.DataFrame | None:
    """The rankings without the problems `outside`, for which the model abstains."""
    if rankings is None:
        return None
    return rankings[~rankings["problem"].isin(list(outside))].reset_index(drop=True)
