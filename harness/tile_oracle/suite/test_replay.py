"""One test a problem, for sessions that replay records: a test a pair would take longer than all the rest."""

from __future__ import annotations

from tile_oracle.plugin import Replayed
from tile_oracle.problem import Problem
from tile_oracle.session.pair_outcome import check_outcomes


def test_problem(problem: Problem, replayed: Replayed) -> None:
    """The problem's records are taken; the verdict on the model's picks comes at the session's end."""
    check_outcomes(replayed(problem))
