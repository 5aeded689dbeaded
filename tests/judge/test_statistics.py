"""Intervals: when the gate fails, passes, or cannot tell."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.made_runs import selected, side
from tests.report.records_factory import record, some_kernels, some_problems
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.criteria import Criteria, Criterion, interval_largest_loss
from tile_oracle.judge.noise import Margin, accepted_margins, margins
from tile_oracle.judge.statistics import (
    Changes,
    Side,
    between_sessions,
    finding_confidences,
    loss_bounds,
    paired_sides,
    with_accepted_picks,
    with_sessions,
)
from tile_oracle.judge.verdict import Verdict, _compared, _notes, judge

PROBLEMS = some_problems(20)
IDS = [problem.id for problem in PROBLEMS]
PICK, BEST, THIRD = some_kernels(3, PROBLEMS[0])
NAMED = {kernel.name: kernel for kernel in (PICK, BEST, THIRD)}
IDENTITY = {one.name: "" for one in dataclasses.fields(Baseline) if one.type == "str"}


def margin(efficiency: float, sigma: float, dof: float = 30.0) -> Margin:
    return Margin("pick", math.log(efficiency), sigma, dof, 3, 1.0 / efficiency, "best", 1.0)


def a_verdict(now: float, then: float, sigma: float, published: bool = False) -> Verdict:
    """Twenty problems: one is at `now` and was at `then`; the others are at 0.9 without noise."""
    rows, rankings = [], []
    for place, problem in enumerate(PROBLEMS):
        efficiency = now if place == 0 else 0.9
        rows += [record(problem, BEST, 2.0), record(problem, PICK, 2.0 * efficiency)]
        rankings += [(problem.id, PICK.name, 2.0), (problem.id, BEST.name, 1.0)]
    _, final, selection = selected(rows, rankings, PROBLEMS)
    accepted = {name: then if name == IDS[0] else 0.9 for name in IDS}
    baseline = Baseline(**IDENTITY, efficiencies=accepted, picks={IDS[0]: margin(then, sigma)})
    limits = Criteria(mean_points=100, rule="published" if published else "interval")
    return judge(selection, final, baseline, limits, margins={IDS[0]: margin(now, sigma)}, settled_by="do so")


class TestLossOfOneProblem:
    def test_a_loss_beyond_its_interval_fails(self) -> None:
        verdict = a_verdict(0.75, 0.9, 0.005)
        assert verdict.state == "failed"
        assert [loss.problem for loss in verdict.losses] == [IDS[0]]
        assert 10 < (verdict.losses[0].low or 0) < 15 < (verdict.losses[0].high or 0) < 20

    def test_the_same_loss_in_noise_is_undecided_with_advice(self) -> None:
        verdict = a_verdict(0.75, 0.9, 0.05)
        assert (verdict.state, verdict.failed, verdict.losses) == ("cannot tell", False, ())
        assert verdict.suspects == (IDS[0],)
        largest = verdict.criteria[3]
        assert (largest.outcome, largest.command) == ("cannot tell", "do so")
        assert IDS[0] in largest.cause

    def test_a_small_noisy_loss_passes(self) -> None:
        assert a_verdict(0.88, 0.9, 0.02).state == "passed"

    def test_the_published_rule_compares_figures_alone(self) -> None:
        assert a_verdict(0.75, 0.9, 0.5, published=True).state == "failed"
        assert a_verdict(0.85, 0.9, 0.5, published=True).criteria[3].low is None

    def test_a_failed_pick_has_no_noise(self) -> None:
        now, then = paired_sides(["p"], {"p": 0.0}, {"p": 0.9}, {}, {"p": margin(0.9, 0.02)})
        low, _ = loss_bounds(now, then, 0.999)
        assert low[0] > 70
        assert loss_bounds(side(0.6), side(0.9), 0.95) == (pytest.approx(30.0), pytest.approx(30.0))

    def test_the_limits_have_their_stated_coverage(self) -> None:
        rng = np.random.default_rng(5)
        truth, sigma = 100 * (0.9 - 0.8), 0.03
        names = [str(number) for number in range(4000)]
        drawn = [
            {name: margin(min(1.0, level * math.exp(rng.normal(0, sigma))), sigma, 1e6) for name in names}
            for level in (0.8, 0.9)
        ]
        values = [{name: one.efficiency for name, one in side.items()} for side in drawn]
        low, high = loss_bounds(*paired_sides(names, *values, *drawn), 0.95)
        missed = int((low > truth).sum()), int((high < truth).sum())
        assert all(0.03 * 4000 < one < 0.07 * 4000 for one in missed)


class TestMetricsOverProblems:
    def test_equal_measurements_have_an_exact_difference(self) -> None:
        same = {name: margin(0.8, 0.05) for name in IDS}
        values = dict.fromkeys(IDS, 0.8)
        sides = paired_sides(IDS, values, values, same, same)
        assert Changes(*sides).interval(lambda x: x.mean(axis=-1), 0.95) == (0.0, 0.0)

    def test_the_interval_of_a_mean_is_that_of_independent_problems(self) -> None:
        now = {name: dataclasses.replace(margin(0.5, 0.02, 1e6), pick_latency_ms=2.1) for name in IDS}
        then = {name: margin(0.5, 0.02, 1e6) for name in IDS}
        values = dict.fromkeys(IDS, 0.5)
        changes = Changes(*paired_sides(IDS, values, values, now, then))
        low, high = changes.interval(lambda x: x.mean(axis=-1), 0.95)
        expected = 1.645 * 100 * 0.5 * 0.02 * math.sqrt(2 / len(IDS))
        assert (-low, high) == pytest.approx((expected, expected), rel=0.1)
        low, high = Changes(side(0.5, sigma=0.02, dof=9.0), side(0.5)).interval(
            lambda x: x.mean(axis=-1), 0.95
        )
        assert low < -1 < 1 < high

    def test_a_baseline_without_noise_data_is_as_noisy_as_the_run(self) -> None:
        now, then = paired_sides(["p"], {"p": 0.8}, {"p": 0.9}, {"p": margin(0.8, 0.03)}, {})
        assert then.sigma.tolist() == now.sigma.tolist() == [0.03]


class TestNoise:
    def rows(self, factors: list[float]) -> list[dict[str, object]]:
        """Pick and oracle of one problem; by round the factor on the pick's TFLOPS, and a drift of both."""
        rows = []
        for number, factor in enumerate(factors):
            drift = 1.0 + 0.3 * number
            rows += [
                record(PROBLEMS[0], PICK, drift * factor, round=number),
                record(PROBLEMS[0], BEST, 2.0 * drift, round=number),
            ]
        return rows

    @pytest.mark.parametrize("pick_tflops", [1.0, 3.0], ids=["another is best", "the pick is best"])
    def test_copies_of_twins_are_not_measurements(self, pick_tflops: float) -> None:
        """Each kernel has a twin; the pick is a copy, and the oracle has the name that sorts first."""
        own = self.rows([pick_tflops * factor for factor in (1.0, 1.2, 0.9, 1.1)])
        own += [record(PROBLEMS[0], THIRD, 1.5 + 0.1 * number, round=number) for number in range(4)]
        twins = {name: dataclasses.replace(kernel, split_image=True) for name, kernel in NAMED.items()}
        copies = [
            {**row, **(twin := twins[str(row["kernel"])]).as_row(), "kernel": twin.name}
            | {"detail": f"twin of {row['kernel']}"}
            for row in own
        ]
        found = []
        for rows, pick in ((own, PICK.name), ([*own, *copies], twins[PICK.name].name)):
            found.append(margins(*selected(rows, [(IDS[0], pick, 1.0)], PROBLEMS[:1]))[IDS[0]])
        assert found[1] == dataclasses.replace(found[0], pick=twins[PICK.name].name)


class TestResolution:
    """A criterion may pass only if it could detect a loss."""

    @staticmethod
    def largest(sigmas: list[float], confidence: float = 0.95) -> Criterion:
        level = [0.9] * len(sigmas)
        now, then = side(*level, sigma=tuple(sigmas), dof=5.0), side(*level, dof=5.0)
        problems = [f"p{number}" for number in range(len(sigmas))]
        return interval_largest_loss(problems, now, then, 10.0, confidence)[0]

    def test_an_equal_metric_passes_if_twice_the_limit_can_be_excluded(self) -> None:
        assert self.largest([0.08] * 20).outcome == "pass"

    def test_it_cannot_tell_if_twice_the_limit_is_possible(self) -> None:
        criterion = self.largest([0.01] * 19 + [0.3])
        assert criterion.outcome == "cannot tell"
        assert criterion.cause == "a loss of 20 points may hide in p19"

    def test_one_problem_in_a_hundred_may_be_too_noisy_and_is_named(self) -> None:
        criterion = self.largest([0.01] * 99 + [0.3])
        assert criterion.outcome == "pass"
        assert criterion.note == "1 too noisy to tell: p99"

    @given(st.lists(st.just(0.0) | st.floats(1e-4, 0.2), min_size=1, max_size=300))
    def test_noisy_problems_do_not_hide_the_loss_of_a_quiet_one(self, noise: list[float]) -> None:
        same = side(*[0.9] * (len(noise) + 1), sigma=(0.002, *noise), dof=5.0)
        confidences = finding_confidences(same, same, 10.0, 0.95)
        assert confidences[0] == 0.95
        assert (confidences >= 0.95).all()

    def test_a_pick_far_ahead_of_the_others_needs_no_more_confidence(self) -> None:
        """Noise of the baseline that leaves the pick ahead does not change its efficiency."""
        ones = np.ones(20)
        now = side(*0.88 * ones, sigma=0.008, dof=14.0)
        for ahead, confidence in ((0.0, 0.99), (0.2, 0.95)):
            then = Side(ones, ahead * ones, 0.05 * ones, 5.0 * ones)
            found = finding_confidences(now, then, 10.0, 0.95)
            assert (found == 0.95).all() == (confidence == 0.95)
        exact = side(*ones)
        assert (finding_confidences(exact, exact, 10.0, 0.95) == 0.95).all()

    @pytest.mark.parametrize("sigma", [0.03, 0.1], ids=["noisy", "very noisy"])
    def test_noise_fails_at_most_two_unchanged_runs_of_a_hundred(self, sigma: float) -> None:
        rng, count, dof = np.random.default_rng(0), 300, 5
        failed = 0
        for _ in range(200):
            true = rng.uniform(-0.15, 0.1, count)
            sides = []
            for _ in range(2):
                measured = true + sigma * rng.normal(size=count)
                error = sigma * np.sqrt(rng.chisquare(dof, count) / dof)
                sides.append(
                    Side(np.minimum(1.0, np.exp(measured)), measured, error, np.full(count, float(dof)))
                )
            confidences = finding_confidences(sides[0], sides[1], 10.0, 0.95)
            failed += bool((loss_bounds(sides[0], sides[1], confidences)[0] > 10.0).any())
        assert failed <= 8  # 4 expected at most


class TestSuspects:
    @staticmethod
    def verdict(losses: list[float], sigma: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Suspects and unsettled problems of 200 problems, the first of which have these losses; the next is
        noisy."""
        lost = np.zeros(200)
        lost[: len(losses)] = losses
        sigmas = np.full(200, 0.002)
        sigmas[len(losses)] = sigma
        now = side(*0.9 - lost / 100, sigma=tuple(sigmas), dof=8.0)
        then = side(*[0.9] * 200, sigma=0.001, dof=8.0)
        names = [f"p{number}" for number in range(200)]
        figures, _, again, unsettled = _compared(names, now, then, Criteria(), {})
        assert figures[3].outcome == ("fail" if losses else "pass")
        return again, unsettled

    def test_a_problem_too_noisy_to_tell_is_measured_again_though_its_criterion_passes(self) -> None:
        assert self.verdict([], 0.3) == (("p0",), ("p0",))
        assert self.verdict([], 0.002) == ((), ()), "quiet unchanged problems are not"

    def test_a_found_loss_is_confirmed_after_what_is_unsettled(self) -> None:
        assert self.verdict([15.0], 0.3) == (("p1", "p0"), ("p1",))


class TestAcceptedPicks:
    """A later run times the pick that the baseline accepted, too, if it picks another kernel."""

    THEN = side(0.97, sigma=0.04, dof=5.0)

    def with_now(self, efficiency: float, sigma: float) -> Side:
        return with_accepted_picks(["p"], self.THEN, {"p": margin(efficiency, sigma)})

    def test_where_both_agree_the_errors_fall(self) -> None:
        both = self.with_now(0.99, 0.005)
        assert both.efficiency[0] == pytest.approx(0.99, abs=0.001)
        assert both.sigma[0] < 0.005
        assert 25 < both.dof[0] < 35

    def test_where_they_differ_the_baseline_stands(self) -> None:
        both = self.with_now(0.8, 0.005)
        assert (both.efficiency[0], both.sigma[0]) == (0.97, 0.04)

    def test_exact_values_stay(self) -> None:
        both = with_accepted_picks(["p"], side(0.97), {"p": margin(0.96, 0.01)})
        assert both.efficiency[0] == 0.97

    @staticmethod
    def a_run(pick: str, latencies: list[float]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Records, final measurements and selection: three rounds of PICK, BEST and THIRD."""
        rows = [
            record(PROBLEMS[0], kernel, tflops * (1.0 + 0.01 * number), round=number)
            for number in range(3)
            for kernel, tflops in zip((PICK, BEST, THIRD), latencies, strict=True)
        ]
        return selected(rows, [(IDS[0], pick, 1.0)], PROBLEMS[:1])

    def test_its_margin_is_that_of_this_run(self) -> None:
        then = margins(*self.a_run(PICK.name, [1.9, 2.0, 1.7]))
        now = self.a_run(THIRD.name, [1.8, 2.0, 1.7])
        found = accepted_margins(*now, then)
        assert found[IDS[0]].pick == PICK.name
        assert found[IDS[0]].efficiency == pytest.approx(0.9)
        assert accepted_margins(*self.a_run(PICK.name, [1.8, 2.0, 1.7]), then) == {}, "no other pick"

    def test_the_recording_of_the_baseline_says_nothing_new(self) -> None:
        records, final, selection = self.a_run(PICK.name, [1.9, 2.0, 1.7])
        assert margins(records, final, selection.assign(pick_status="crash")) == {}
        then = margins(records, final, selection)
        assert accepted_margins(*self.a_run(THIRD.name, [1.9, 2.0, 1.7]), then) == {}


class TestDrift:
    """A pick that was timed only in the sweep, against leaders that were timed again."""

    def test_the_verdict_says_so(self) -> None:
        found = dataclasses.replace(margin(0.8, 0.005), drift=0.101)
        now = side(0.8, sigma=found.sigma, dof=4.0)
        (note,) = _notes((), 0.0, IDS[:1], now, {IDS[0]: found})
        assert note.startswith("1 pick was timed once; corrected for machine drift since then (at most ")
        assert note.endswith("(at most 10.1 %)")
        assert not list(_notes((), 0.0, IDS[:1], now, {IDS[0]: margin(0.8, 0.1)}))

    def test_a_few_noisy_suspects_are_not_typical(self) -> None:
        """Only suspects have a second interleaved round, and they are the noisiest."""
        rows, rankings = [], []
        for number, problem in enumerate(PROBLEMS):
            for round_ in range(3 if number < 2 else 2):
                noise = 1.0 + (0.2 * (-1) ** round_ if number < 2 else 0.001 * (-1) ** round_)
                rows += [record(problem, PICK, 1.8 * noise, round=round_)]
                rows += [record(problem, BEST, 2.2, round=round_)]
                rows += [record(problem, THIRD, 2.1, round=round_)] if round_ < 2 else []
            rankings.append((problem.id, PICK.name, 1.0))
        found = margins(*selected(rows, rankings, PROBLEMS))
        assert found[IDS[0]].sigma > 0.05
        assert found[IDS[-1]].sigma < 0.01


class TestSessions:
    """A difference between two sessions that no round of either shows."""

    def sides(self, rng: np.random.Generator, count: int, between: float = 0.0) -> tuple[Side, Side]:
        """Two runs in which nothing has changed. between: what two sessions differ by."""
        true = rng.uniform(-0.15, 0.1, count)
        sides = []
        for _ in range(2):
            measured = true + rng.normal(0, np.hypot(0.01, between / math.sqrt(2)), count)
            errors = np.full(count, 0.01), np.full(count, 8.0)
            sides.append(Side(np.minimum(1.0, np.exp(measured)), measured, *errors))
        return sides[0], sides[1]

    def test_it_is_estimated_from_the_change_of_margins(self) -> None:
        def found(between: float, count: int) -> float:
            sides = self.sides(np.random.default_rng(1), count, between)
            return between_sessions(*sides, np.ones(count, dtype=bool))

        assert found(0.05, 2000) == pytest.approx(0.05, rel=0.15)
        assert found(0.0, 2000) < 0.005
        assert found(0.05, 4) == 0, "too few problems to tell"

    def test_changed_picks_do_not_count(self) -> None:
        now, then = self.sides(np.random.default_rng(2), 20)
        moved = Side(now.efficiency, now.log_ratio - np.repeat([0.4, 0.0], 10), now.sigma, now.dof)
        same = np.repeat([False, True], 10)
        assert between_sessions(moved, then, same) < 0.02 < between_sessions(moved, then, ~same | same)

    def test_a_regression_of_a_tenth_of_the_problems_is_not_noise(self) -> None:
        now, then = self.sides(np.random.default_rng(3), 40)
        moved = Side(now.efficiency, now.log_ratio - np.repeat([0.3, 0.0], [4, 36]), now.sigma, now.dof)
        assert between_sessions(moved, then, np.ones(40, dtype=bool)) < 0.02

    def test_the_verdict_says_so(self) -> None:
        exact = self.sides(np.random.default_rng(3), 1)[0]
        assert not list(_notes((), 0.0, (), exact.only(np.zeros(1, dtype=bool)), {}))
        (note,) = _notes((), 0.0153, (), exact.only(np.zeros(1, dtype=bool)), {})
        assert note.startswith("session-to-session noise is 1.5 % (")

    def test_exact_values_stay_exact(self) -> None:
        assert not with_sessions(side(*[1.0] * 6), 0.1).sigma.any()
