"""What each sign, limit and condition of a verdict decides, on runs small enough to follow by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.made_runs import IDS, PICK, PROBLEMS, a_run, baseline, judged, selected, side
from tests.report.records_factory import record, some_kernels
from tile_oracle.judge.bootstrap import interval, mean, p10, paired_interval
from tile_oracle.judge.criteria import (
    Criteria,
    Criterion,
    coverage,
    interval_average,
    interval_largest_loss,
    suspects,
)
from tile_oracle.judge.noise import Margin, margins
from tile_oracle.judge.picker import Origin, Picker
from tile_oracle.judge.scope import NOTHING_JUDGED, Part, part_to_judge
from tile_oracle.judge.statistics import (
    Side,
    between_sessions,
    finding_confidences,
    paired_sides,
    with_sessions,
)
from tile_oracle.judge.verdict import IN_SAMPLE, Verdict

PUBLISHED = Criteria(rule="published")


def test_published_losses_are_those_that_fell_by_more_than_the_limit_the_largest_first() -> None:
    verdict = judged([0.70, 0.95, 0.85, 0.60, 0.9], [0.82, 0.70, 0.95, 0.90, 0.9], PUBLISHED)
    assert [(loss.problem, round(loss.loss_points, 6)) for loss in verdict.losses] == [
        (IDS[3], 30.0),
        (IDS[0], 12.0),
    ]
    largest = next(one for one in verdict.criteria if one.name == "largest loss")
    assert (largest.value, largest.note) == (pytest.approx(30.0), "2 problems lost more than 10 points")
    for criteria in (PUBLISHED, Criteria()):
        assert not judged([0.84, 0.9], [0.94, 0.9], criteria).losses, "10 points are not more than 10"
    one = judged([0.70, 0.9], [0.82, 0.9], PUBLISHED)
    assert one.criteria[3].note == "1 problem lost more than 10 points"


@pytest.mark.parametrize(("points", "outcome"), [(9.0, "fail"), (10.0, "cannot tell"), (20.0, "pass")])
def test_undecided_picks_leave_coverage_open_where_they_would_be_enough(points: float, outcome: str) -> None:
    """Ten problems: one is undecided, one is not covered, and the limit itself is enough."""
    then = dict.fromkeys(IDS, 0.9)
    now = {**then, IDS[0]: None, IDS[1]: None}
    found = coverage(IDS, now, then, points, compared=True, complete=True, undecided=(IDS[0],))
    assert (found.value, found.limit, found.outcome) == (80.0, 100.0 - points, outcome)


def test_a_part_that_the_model_has_seen_most_of_is_in_sample() -> None:
    verdict = judged([0.9, 0.8], [0.9, 0.8])
    selection, _ = a_run([0.9, 0.8, 0.7])

    def settled(seen: int, alone: int, covered: int, verdict: Verdict = verdict) -> Verdict:
        return Part(selection, None, ("seen",) * seen, ("alone",) * alone, covered).settled(verdict)

    assert settled(0, 0, 0) == settled(0, 1, 3) == settled(1, 1, 3) == settled(1, 0, 2) == verdict
    trained = "the model was trained on 2 of the 3 problems that judge it"
    for seen, covered, left in ((2, 3, ", which leaves 1"), (3, 3, "")):
        found = settled(seen, 0, covered)
        assert (found.state, found.message) == (IN_SAMPLE, trained.replace("2", str(seen)) + left)
    assert settled(1, 1, 2).state == settled(0, 1, 1).state == NOTHING_JUDGED
    failed = judged([0.5, 0.8], [0.9, 0.8])
    assert settled(3, 0, 3, failed) == settled(0, 1, 1, failed) == failed


def test_a_verdict_leaves_out_what_the_model_has_seen_and_only_candidates() -> None:
    selection, _ = a_run([0.9, 0.8, 0.7, None])
    selection.loc[1, "kernels_measured"] = 1
    part = part_to_judge(selection, baseline([0.9, 0.8, 0.7, 0.6]), (IDS[0], IDS[3]))
    assert (part.in_sample, part.alone, part.covered) == ((IDS[0],), (IDS[1],), 3)
    assert part.selection["problem"].tolist() == [IDS[2]]
    assert part.baseline.efficiencies == {IDS[2]: 0.7}


@pytest.mark.parametrize(
    ("ok", "unsupported", "pick_status", "alone"),
    [(3, 0, "ok", False), (1, 0, "ok", False), (1, 2, "ok", True), (1, 2, "unsupported", False)],
    ids=["right ones", "others are wrong", "others are refused", "it is refused itself"],
)
def test_a_picker_that_names_one_kernel_had_a_choice_where_others_run(
    ok: int, unsupported: int, pick_status: str, alone: bool
) -> None:
    selection, _ = a_run([0.9, 0.8])
    selection.loc[0, ["kernels_ranked", "kernels_measured"]] = 1, 3
    selection.loc[0, ["kernels_ok", "kernels_unsupported", "pick_status"]] = ok, unsupported, pick_status
    assert part_to_judge(selection, None, ()).alone == ((IDS[0],) if alone else ())


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(1)
    found = [interval(random.normal(5.0, 1.0, 60), mean) for _ in range(100)]
    assert 86 <= sum(one.low <= 5.0 <= one.high for one in found) <= 99
    values = random.normal(0, 1, 50)
    moved = paired_interval(values, values + 1.0, mean)
    assert (moved.value, moved.low, moved.high) == pytest.approx((1.0, 1.0, 1.0))
    assert interval(values, p10).value == pytest.approx(np.quantile(values, 0.1))
    apart = paired_interval(np.zeros(50), values, mean)
    assert (apart.low, apart.high) == pytest.approx((interval(values, mean).low, interval(values, mean).high))


def test_the_noise_between_sessions_is_what_the_errors_leave_over_by_hand() -> None:
    """The 75th percentile of the distances of the moves from their median is 1.5 times what errors allow."""
    dof, sigma = 8.0, 0.01
    allowed = scipy.stats.t.ppf(0.875, dof) * sigma * math.sqrt(2)
    moves = np.linspace(-2.0, 2.0, 9) * allowed
    one = Side(np.full(9, 0.5), moves, np.full(9, sigma), np.full(9, dof))
    other = Side(one.efficiency, np.zeros(9), one.sigma, one.dof)
    between = between_sessions(one, other, np.ones(9, dtype=bool))
    assert between == pytest.approx(math.sqrt(1.5**2 - 1) * sigma * math.sqrt(2), rel=1e-6)
    few = [np.isin(np.arange(9), range(start, 9, 2)) for start in (2, 0)]  # four of them, and five
    assert [between_sessions(one, other, some) > 0 for some in few] == [False, True]
    noisier = with_sessions(one, between)
    own, added = sigma**2, between**2 / 2
    assert noisier.sigma == pytest.approx(np.full(9, math.sqrt(own + added)))
    assert noisier.dof == pytest.approx(np.full(9, (own + added) ** 2 / (own**2 / dof + added**2 / 4.5)))


def test_the_oracle_s_own_margin_is_not_corrected_for_drift() -> None:
    drifted = Margin("pick", 0.2, 0.01, 9.0, 0, 1.0, "other", 1.2, drift=0.3)
    now, then = paired_sides(["p"], {"p": 1.0}, {"p": 0.9}, {"p": drifted}, {})
    assert (now.efficiency[0], now.log_ratio[0]) == (1.0, 0.2)
    assert (then.efficiency[0], then.log_ratio[0]) == (0.9, pytest.approx(math.log(0.9)))
    now, _ = paired_sides(["p"], {"p": 0.5}, {"p": 1.0}, {"p": drifted}, {})
    assert now.log_ratio[0] == pytest.approx(math.log(0.5) - 0.3)
    assert now.efficiency[0] == pytest.approx(0.5 * math.exp(-0.3))


@pytest.mark.parametrize(
    ("sigma", "confidence"),
    [
        (1e-5, 0.95),
        (0.019, 0.99),
        (0.012, 0.995),
        (0.005, 0.998),
        (0.002, 0.999),
        (5e-4, 0.9995),
        (0.05, 0.99999),
    ],
)
def test_each_confidence_of_a_loss_is_that_of_some_noise(sigma: float, confidence: float) -> None:
    """Of 20,000 problems, with errors of the longest tails."""
    noisy = side(*[0.9] * 20_000, sigma=sigma, dof=1.0)
    assert set(finding_confidences(noisy, noisy, 10.0, 0.95)) == {confidence}


def test_the_doubt_of_a_problem_is_its_error_in_points_not_in_ratios() -> None:
    """One problem has the larger relative error, the other the larger one in points."""
    now = side(0.99, 0.30, sigma=(0.08, 0.16))
    then = side(0.99, 0.30, sigma=(0.08, 0.16))
    criterion = interval_average("mean", mean, ["near the oracle", "far"], now, then, 0.5, 0.95)
    assert criterion.outcome == "cannot tell"
    assert criterion.cause.endswith("most of the doubt is in near the oracle and far")


def test_an_origin_names_the_model_and_what_a_picker_learnt_from_is_known() -> None:
    assert Origin("vendor", "a library").sentence == "the own choice of a library"
    assert Origin("folder", detail="2 folds").sentence == "ranked by the trained model a model (2 folds)"
    assert Picker.known


def test_both_sides_make_doubt() -> None:
    now = side(0.9, 0.9, 0.9, sigma=(0.001, 0.1, 0.001))
    then = side(0.9, 0.9, 0.9, sigma=(0.2, 0.001, 0.001))
    criterion = interval_average("mean", mean, ["before", "now", "neither"], now, then, 0.5, 0.95)
    assert criterion.cause.endswith("most of the doubt is in before and now")


def test_a_loss_that_noise_could_hide_is_measured_again_before_others() -> None:
    now, then = side(0.80, 0.899, 0.9, sigma=(0.05, 0.0, 0.0)), side(0.92, 0.9, 0.9)
    criterion, low, high = interval_largest_loss(IDS[:3], now, then, 10.0, 0.95)
    assert (low[0] < 10 < high[0], criterion.outcome) == (True, "cannot tell")
    assert criterion.value == pytest.approx(12.0)
    assert high[1] == pytest.approx(0.1)
    uncovered = coverage((), {}, {}, 0.0, compared=False, complete=True)
    again, unsettled = suspects(IDS[:3], [criterion, uncovered], low, high, Criteria())
    assert (again, unsettled) == ((IDS[0],), (IDS[0],))


POINTS = st.floats(0.1, 5.0)


@given(
    limits=st.builds(Criteria, mean_points=POINTS, median_points=POINTS, p10_points=POINTS),
    name=st.sampled_from([("mean", "mean_points"), ("median", "median_points"), ("P10", "p10_points")]),
    outcome=st.sampled_from(["fail", "cannot tell"]),
    high=st.lists(st.floats(0.0, 9.0), min_size=1, max_size=5),
)
def test_those_are_measured_again_whose_loss_may_exceed_the_limit_of_an_open_criterion(
    limits: Criteria, name: tuple[str, str], outcome: str, high: list[float]
) -> None:
    criteria = [Criterion(one, "%", 90.0, 91.0, 90.5, "pass") for one in ("mean", "median", "P10")]
    criteria = [replace(one, outcome=outcome) if one.name == name[0] else one for one in criteria]
    names = IDS[: len(high)]
    again, unsettled = suspects(names, criteria, np.zeros(len(high)), np.array(high), limits)
    limit = getattr(limits, name[1])
    assert set(again) == {one for one, most in zip(names, high, strict=True) if most > limit}
    assert not unsettled


def margins_of(
    *problems: tuple[tuple[float, ...], ...],
    spread: float | tuple[float, ...] | None = None,
    samples: int | None = None,
) -> dict[str, Margin]:
    """The margins of problems: the latencies of kernels in ms, round after round; the last one is picked.
    spread: of every measurement, or of each round."""
    rows, ranked = [], []
    for problem, kernels in zip(PROBLEMS, problems, strict=False):
        named = (*some_kernels(len(kernels) + 2, problem)[3:], PICK)
        for kernel, several in zip(named, kernels, strict=True):
            for number, ms in enumerate(several):
                own = spread[number] if isinstance(spread, tuple) else spread
                timed = {"latency_ms": ms, "spread": own, "samples": samples}
                rows.append(record(problem, kernel, 2.0 / ms, round=number) | timed)
        ranked.append((problem.id, PICK.name, 9.0))
    return margins(*selected(rows, ranked, PROBLEMS[: len(problems)]))


SCATTER = 1.4826 / math.sqrt(2)
"""From a median of moves between rounds to the standard deviation of one."""


@pytest.mark.parametrize("count", [2, 3, 7, 8, 12])
@pytest.mark.parametrize("spread", [None, 0.001, 0.5], ids=["no samples", "quiet", "noisy"])
def test_the_error_of_a_margin_is_that_of_its_rounds_and_of_the_run(count: int, spread: float | None) -> None:
    """The run counts as four degrees of freedom; an interquartile range as 0.37 of those of a variance."""
    rng = np.random.default_rng(count)
    pick = np.exp(rng.normal(0.3, 0.02, count + 1))
    (found,) = margins_of(((1.0,) * (count + 1), tuple(pick)), spread=spread, samples=25).values()
    assert (found.rounds, found.log_ratio) == (count, pytest.approx(-np.log(np.median(pick[1:])), abs=1e-4))
    seen = np.log(pick if count < 3 else pick[1:])
    typical = SCATTER * np.median(np.abs(np.diff(np.log(pick[1:]))))
    run = max(typical, math.sqrt(2) * 0.93 * (spread or 0.0) / 5)
    own, dof = np.var(seen, ddof=1), len(seen) - 1
    if count > 7:
        quarter, three = np.quantile(seen, [0.25, 0.75])
        own, dof = ((three - quarter) / 1.349) ** 2, 0.37 * dof
    assert found.dof == pytest.approx(4 + dof)
    of_median = 1.0 if count < 3 else 1.35 if count < 8 else 1.5
    assert found.sigma == pytest.approx(math.sqrt((4 * run**2 + dof * own) / (4 + dof) * of_median / count))


@pytest.mark.parametrize(
    ("spread", "samples", "sigma"),
    [(None, 25, 0.005), (0.02, 25, 0.93 * 0.02 / 5), (0.02, 2, 0.93 * 0.02 / math.sqrt(2))],
)
def test_one_round_has_the_error_of_its_samples_or_a_usual_one(
    spread: float | None, samples: int, sigma: float
) -> None:
    (found,) = margins_of(((1.0,), (1.25,)), spread=spread, samples=samples).values()
    assert (found.rounds, found.dof, found.efficiency) == (0, 2.0, pytest.approx(0.8))
    assert found.sigma == pytest.approx(math.sqrt(2) * sigma)
    assert margins_of(((1.5,), (1.25,), (1.0,)))[IDS[0]].log_ratio == pytest.approx(math.log(1.25))
    assert margins_of(((1.25,),)) == {IDS[0]: Margin(PICK.name, 0.0, 0.0, 4.0, 0, 1.25)}


def test_two_interleaved_rounds_of_half_of_the_problems_tell_the_run_s_noise() -> None:
    moved = 1.2 * math.exp(0.1)
    once = margins_of(((1.0,) * 3, (1.2, moved, moved)), ((1.0,) * 2, (1.2, moved)))[IDS[1]]
    assert (once.dof, once.sigma) == (5.0, pytest.approx(0.1 / math.sqrt(2 * 5)))


def test_a_pick_of_the_sweep_has_the_median_drift_of_the_leaders_and_their_error() -> None:
    """They became slower by 0.10, 0.11 and 0.12 (logs): the first predicts the others' with 0.01 and 0.02."""
    slower = (0.10, 0.11, 0.12)
    leaders = tuple(
        (1.0 + 0.01 * place, (1.0 + 0.01 * place) * math.exp(one)) for place, one in enumerate(slower)
    )
    (found,) = margins_of((*leaders, (1.6,))).values()
    typical = SCATTER * 0.015
    of_median = math.sqrt(1.35 * typical**2 / 3)
    assert found.drift == pytest.approx(0.11)
    assert found.log_ratio == pytest.approx(math.log(math.exp(0.10) / 1.6) - 0.11)
    assert found.sigma == pytest.approx(1.645 / 2.920 * math.hypot(typical, of_median))
    assert (found.rounds, found.dof) == (0, 2.0)


def test_the_samples_of_both_rounds_make_the_error_of_a_drift() -> None:
    leaders = tuple((ms, ms * math.exp(0.1)) for ms in (1.0, 1.01, 1.02))
    (found,) = margins_of((*leaders, (1.6,)), spread=(0.05, 0.01), samples=25).values()
    of_both = math.hypot(0.93 * 0.05 / 5, 0.93 * 0.01 / 5)
    assert found.drift == pytest.approx(0.1)
    assert found.sigma == pytest.approx(1.645 / 2.920 * of_both * math.sqrt(1 + 1.35 / 3))


def test_leaders_that_agree_less_than_their_samples_say_have_a_longer_tail() -> None:
    slower = (0.10, 0.1001, 0.0999, 0.1)
    leaders = tuple(
        (1.0 + 0.01 * place, (1.0 + 0.01 * place) * math.exp(one)) for place, one in enumerate(slower)
    )
    quiet = margins_of((*leaders, (1.6,)))
    outlier = (1.05, 1.05 * math.exp(0.16))
    loud = margins_of((*leaders, outlier, (1.6,)))
    (was,), (now,) = quiet.values(), loud.values()
    typical = SCATTER * 0.0001
    left = [
        abs(one - np.median([other for at, other in enumerate((*slower, 0.16)) if at != place]))
        for place, one in enumerate((*slower, 0.16))
    ]
    expected = typical * math.sqrt(1 + 1.35 / 4)
    excess = np.quantile(np.array(left) / expected, 0.9) / 1.645 * 1.645 / 2.920
    assert now.sigma == pytest.approx(excess * math.hypot(typical, typical * math.sqrt(1.35 / 5)), rel=0.02)
    assert now.sigma > 10 * was.sigma


def test_leaders_with_nothing_in_common_correct_nothing_and_add_their_drift() -> None:
    slower = (0.2, -0.2)
    leaders = tuple((1.0, math.exp(one)) for one in slower)
    found = margins_of((*leaders, (2.0,)), ((1.0, 1.0), (1.0, 1.1), (2.0,)))
    typical = SCATTER * np.median([0.4, math.log(1.1)])
    drift = np.quantile([0.0, math.log(1.1) / 2], 0.9) / 1.645
    for one in found.values():
        assert (one.drift, one.dof) == (0.0, 2.0)
        assert one.sigma == pytest.approx(math.hypot(typical, drift))
