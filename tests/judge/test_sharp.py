"""What each sign, limit and condition of a verdict decides, on runs small enough to follow by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from tests.judge.made_runs import BEST, EXTRA, IDS, PICK, PROBLEMS, judged
from tests.report.records_factory import frame, record
from tile_oracle.judge.bootstrap import mean
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.interval_criteria import interval_average, interval_largest_loss, suspects
from tile_oracle.judge.noise import margins
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import select
from tile_oracle.judge.statistics import Side
from tile_oracle.record.final import final_measurements

PUBLISHED = Criteria(rule="published")


def side(*efficiencies: float, sigma: float | tuple[float, ...] = 0.0, dof: float = 30.0) -> Side:
    values = np.array(efficiencies)
    return Side(values, np.log(values), np.broadcast_to(sigma, values.shape), np.full(values.shape, dof))


def test_published_losses_are_those_that_fell_by_more_than_the_limit_the_largest_first() -> None:
    verdict = judged([0.70, 0.95, 0.85, 0.60], [0.82, 0.70, 0.95, 0.90], PUBLISHED)
    assert [(loss.problem, round(loss.loss_points, 6)) for loss in verdict.losses] == [
        (IDS[3], 30.0),
        (IDS[0], 12.0),
    ]
    largest = next(one for one in verdict.criteria if one.name == "largest loss")
    assert (largest.value, largest.note) == (pytest.approx(30.0), "2 problems lost more than 10 points")
    assert not judged([0.84, 0.9], [0.94, 0.9], PUBLISHED).losses, "10 points are not more than 10"


def test_the_doubt_of_a_problem_is_its_error_in_points_not_in_ratios() -> None:
    """One problem has the larger relative error, the other the larger one in points."""
    now = side(0.99, 0.30, sigma=(0.08, 0.16))
    then = side(0.99, 0.30, sigma=(0.08, 0.16))
    criterion = interval_average("mean", mean, ["near the oracle", "far"], now, then, 0.5, 0.95)
    assert criterion.outcome == "cannot tell"
    assert criterion.cause.endswith("most of the doubt is in near the oracle and far")


def test_both_sides_make_doubt() -> None:
    now = side(0.9, 0.9, sigma=(0.001, 0.1))
    then = side(0.9, 0.9, sigma=(0.2, 0.001))
    criterion = interval_average("mean", mean, ["before", "now"], now, then, 0.5, 0.95)
    assert criterion.cause.endswith("most of the doubt is in before and now")


def test_a_loss_that_noise_could_hide_is_measured_again_before_others() -> None:
    now, then = side(0.80, 0.899, 0.9, sigma=(0.05, 0.0, 0.0)), side(0.92, 0.9, 0.9)
    criterion, low, high = interval_largest_loss(IDS[:3], now, then, 10.0, 0.95)
    assert (low[0] < 10 < high[0], criterion.outcome) == (True, "cannot tell")
    assert criterion.value == pytest.approx(12.0)
    assert high[1] == pytest.approx(0.1)
    again, unsettled = suspects(IDS[:3], [criterion], low, high, Criteria())
    assert (again, unsettled) == ((IDS[0],), (IDS[0],))


def rounds(*latencies_ms: tuple[float, ...]) -> dict[str, float]:
    """The margins' sigma of one problem a tuple: of pick and best, round after round, from the sweep on."""
    rows, ranked = [], []
    for problem, several in zip(PROBLEMS, latencies_ms, strict=False):
        for number, pick_ms in enumerate(several):
            common = {"spread": None, "samples": None}
            rows.append(record(problem, BEST, 2.0, round=number) | {"latency_ms": 1.0} | common)
            rows.append(record(problem, PICK, 2.0 / pick_ms, round=number) | {"latency_ms": pick_ms} | common)
        ranked += [(problem.id, PICK.name, 9.0), (problem.id, BEST.name, 1.0)]
    records = frame(rows)
    final = final_measurements(records)
    table = pd.DataFrame(ranked, columns=["problem", "kernel", "predicted_tflops"])
    selection = select(PROBLEMS[: len(latencies_ms)], final, find_oracles(final), table)
    return {problem: one.sigma for problem, one in margins(records, final, selection).items()}


SCATTER = 1.4826 / math.sqrt(2)
"""From a median of moves between rounds to the standard deviation of one."""


def test_the_scatter_of_a_run_is_that_between_interleaved_rounds_where_most_problems_have_them() -> None:
    """The sweep is not interleaved: its move of 30 % counts only where nothing else is known."""
    twice = rounds((1.3, 1.01, 1.03), (1.3, 1.02, 1.04))
    moved = math.log(1.03 / 1.01)
    assert twice[PROBLEMS[0].id] < 0.1
    assert twice[PROBLEMS[0].id] == pytest.approx(twice[PROBLEMS[1].id], rel=0.5)
    once = rounds((1.3, 1.01), (1.3, 1.02))
    assert once[PROBLEMS[0].id] > 3 * twice[PROBLEMS[0].id] > SCATTER * moved


def test_few_problems_with_further_rounds_do_not_speak_for_the_run() -> None:
    """Suspects are noisier than the others."""
    sigma = rounds((1.001, 1.001), (1.001, 1.001), (1.001, 1.001), (1.0, 1.0, 1.4))
    assert sigma[PROBLEMS[0].id] < 0.01
    assert EXTRA.name not in sigma
