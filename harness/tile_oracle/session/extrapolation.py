"""Which problems of a session lie outside of what its models were trained on, and which picks extrapolate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tile_oracle.problem import Problem
from tile_oracle.session.models import ModelChoice

if TYPE_CHECKING:
    import pandas as pd

    from tile_oracle.training.training_range import Extrapolation, TrainingRange


class Ranges:
    """What the trained models of a choice were trained on; models that do not say it are left aside."""

    def __init__(self, choice: ModelChoice) -> None:
        """Raises ModelError for a model folder that cannot be read."""
        self._of_folder: dict[object, TrainingRange | None] = {}
        self._folders = dict(choice.folders)
        if self._folders:
            from tile_oracle.training.training_range import TrainingRange

            for folder in set(self._folders.values()):
                self._of_folder[folder] = TrainingRange.of(folder)

    def outside(self, problems: Iterable[Problem]) -> dict[str, tuple[str, ...]]:
        """Problem id -> in what it is outside of the training; problems inside are left out."""
        found = {}
        for problem in problems:
            of_kind = self._of(problem)
            if of_kind is not None and (reasons := of_kind.problem_outside(problem)):
                found[problem.id] = reasons
        return found

    def of_picks(self, problems: Iterable[Problem], picks: Mapping[str, str]) -> Extrapolation:
        """Which picks extrapolate. picks: problem id -> name of the kernel that was picked."""
        from tile_oracle.training.training_range import Extrapolation

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
    """The rankings less those of the problems `outside`: the model picks nothing for them."""
    if rankings is None:
        return None
    return rankings[~rankings["problem"].isin(list(outside))].reset_index(drop=True)
