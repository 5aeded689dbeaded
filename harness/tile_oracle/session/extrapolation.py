"""The training ranges of a session's models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tile_oracle.problem import Problem
from tile_oracle.session.models import ModelChoice
from tile_oracle.training.extrapolation import Extrapolation, extrapolating_picks, problems_outside

if TYPE_CHECKING:
    from tile_oracle.training.training_range import TrainingRange


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
        return problems_outside(self._of, problems)

    def of_picks(self, problems: Iterable[Problem], picks: Mapping[str, str]) -> Extrapolation:
        """The picks that extrapolate. picks: problem id -> name of the picked kernel."""
        return extrapolating_picks(self._of, problems, picks)

    def _of(self, problem: Problem) -> TrainingRange | None:
        return self._of_folder.get(self._folders.get(problem.kind))
