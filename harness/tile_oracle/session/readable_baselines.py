"""Damaged baselines, found before the first kernel is measured."""

from __future__ import annotations

from collections.abc import Iterable

from tile_oracle.judge.baseline_file import load_baseline
from tile_oracle.model.store import model_places
from tile_oracle.problem_set import ProblemSet
from tile_oracle.session.models import NONE, ModelChoice, baseline_file
from tile_oracle.session.options import SessionOptions
from tile_oracle.targets.target import REPLAY, Target


def refuse_damaged_baselines(
    judged: Iterable[tuple[ModelChoice, ProblemSet]], options: SessionOptions, target: Target
) -> None:
    """Reads the baselines of these models and sets for any device: which one it is, only a measurement says.
    Raises GateError."""
    for choice, part in judged:
        if choice.name == NONE:
            continue
        place = baseline_file(choice, part, "any", options)
        model, _, problems, file = place.parts[-4:]
        for root in model_places(options.baseline_dir, target.arch, target.name == REPLAY):
            for path in sorted((root / model).glob(f"*/{problems}/{file}")):
                load_baseline(path)
