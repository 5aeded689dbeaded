"""A sample of the campaign of planted losses: the shipped recording of a CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tools.faults import verdicts

PATHS = [path for path in verdicts.recordings() if "_bf16_cpu" in str(path)]


@pytest.mark.slow
def test_an_unchanged_run_does_not_fail() -> None:
    verdict = verdicts.verdict_on(verdicts.load(PATHS[0]), "unchanged", np.random.default_rng([20260, 0, 0]))
    assert not verdict.failed
    assert verdict.compared == 300


def test_a_loss_of_one_point_in_the_mean_is_found() -> None:
    verdict = verdicts.verdict_on(verdicts.load(PATHS[0]), "mean", np.random.default_rng([20260, 0, 1]))
    assert [one.outcome for one in verdict.criteria if one.name == "mean"] == ["fail"]


def test_the_planted_loss_is_exact_before_noise() -> None:
    recording = verdicts.load(PATHS[0])
    picks, rows = verdicts.planted(recording, "problem", np.random.default_rng(1))
    (problem,) = picks.index[picks != recording.picks]
    now = verdicts._analysed(recording, rows, picks).selection.set_index("problem").at[problem, "efficiency"]
    then = verdicts.baseline_of(recording, verdicts.REPLAY).efficiencies[problem]
    assert then is not None
    assert 100 * (then - now) == pytest.approx(verdicts.PROBLEM_POINTS, abs=0.01)
