"""One test per problem, for replays: one test per pair would take longer than the rest of the session."""

from __future__ import annotations

from tile_oracle.plugin import Replayed
from tile_oracle.problem import Problem
from tile_oracle.session.pair_outcome import check_outcomes


def test_problem(problem: Problem, replayed: Replayed) -> None:
    """Takes the problem's records. The verdict on the model's picks follows at the end of the session."""
    check_outcomes(replayed(problem))
