"""A sample of the campaign of planted losses: the shipped recording of a CPU."""

from __future__ import annotations

import numpy as np
import pandas as pd
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


def test_simulated_rounds_scatter_as_the_recorded_ones_do() -> None:
    """The 90th and 99th percentile of how a leader changes relative to the others of its problem."""

    def changes(rows: pd.DataFrame) -> np.ndarray:
        ok = rows[rows["status"] == "ok"].assign(log=lambda x: np.log(x["latency_ms"]))
        logs = ok.pivot_table(index=["problem", "kernel"], columns="round", values="log").dropna()
        change = logs[1] - logs[0]
        left = change - change.groupby("problem").transform("median")
        return np.quantile(left.abs()[left != 0], [0.9, 0.99])

    recording = verdicts.load(PATHS[0])
    same = recording.rows.assign(latency_ms=1.0)
    drawn = [changes(verdicts.drawn(recording, same, np.random.default_rng(seed))) for seed in range(5)]
    ratio = np.mean(drawn, axis=0) / changes(recording.rows)
    assert ((ratio > 0.75) & (ratio < 1.33)).all(), ratio


def test_the_planted_loss_is_exact_before_noise() -> None:
    recording = verdicts.load(PATHS[0])
    picks, rows = verdicts.planted(recording, "problem", np.random.default_rng(1))
    (problem,) = picks.index[picks != recording.picks]
    now = verdicts._analysed(recording, rows, picks).selection.set_index("problem").at[problem, "efficiency"]
    then = verdicts.baseline_of(recording, verdicts.REPLAY).efficiencies[problem]
    assert then is not None
    assert 100 * (then - now) == pytest.approx(verdicts.PROBLEM_POINTS, abs=0.01)
