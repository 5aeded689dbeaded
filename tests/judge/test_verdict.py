"""The verdict: criteria, failures, and runs without a baseline."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.judge.made_runs import BEST, CRASH, EXTRA, IDENTITY, IDS, PROBLEMS, a_run, baseline, judged
from tests.report.records_factory import frame, record, some_kernels
from tile_oracle.judge.baseline import Baseline
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.failures import failures_of
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import select
from tile_oracle.judge.verdict import Verdict, judge
from tile_oracle.record.final import final_measurements


def passed(verdict: Verdict) -> dict[str, bool | None]:
    return {criterion.name: criterion.passed for criterion in verdict.criteria}


ALL_MET = dict.fromkeys(("mean", "median", "P10", "largest loss", "coverage", "new failures"), True)


class TestCriteria:
    def test_an_equal_run_passes(self) -> None:
        verdict = judged([0.9, 0.8, 1.0], [0.9, 0.8, 1.0])
        assert (verdict.state, verdict.failed, verdict.compared) == ("passed", False, 3)
        assert verdict.message == "every criterion is met"
        assert passed(verdict) == ALL_MET

    def test_the_mean_may_fall_by_half_a_point(self) -> None:
        then = [0.9] * 10
        within = judged([0.9 - 0.049, *then[1:]], then)
        beyond = judged([0.9 - 0.051, *then[1:]], then)
        assert passed(within) == ALL_MET
        assert passed(beyond) == {**ALL_MET, "mean": False}
        assert beyond.failed
        assert beyond.message == "criteria not met: mean"

    def test_the_median_may_fall_by_half_a_point(self) -> None:
        then = [0.7, 0.9, 0.99]
        assert passed(judged([0.71, 0.896, 0.99], then)) == ALL_MET
        assert passed(judged([0.72, 0.894, 0.99], then)) == {**ALL_MET, "median": False}

    def test_p10_may_fall_by_two_points(self) -> None:
        then = [0.5] + [0.9] * 9
        raised = [0.93] * 8
        now = [0.44, 0.9, *raised]  # P10 of ten values: the lowest + 0.9 (second lowest - lowest)
        verdict = judged(now, then)
        assert verdict.criteria[2].value == pytest.approx(100 * float(np.percentile(now, 10)))
        assert passed(verdict) == ALL_MET
        assert passed(judged([0.44, 0.83, *raised], then)) == {**ALL_MET, "P10": False}

    def test_no_problem_may_lose_more_than_ten_points(self) -> None:
        then = [0.9, 0.9, 0.6, 0.6, 0.6]
        assert passed(judged([0.801, 0.9, 0.7, 0.7, 0.7], then)) == ALL_MET
        verdict = judged([0.79, 0.78, 0.7, 0.7, 0.7], then, Criteria(p10_points=100, mean_points=100))
        assert passed(verdict) == {**ALL_MET, "largest loss": False}
        assert [loss.problem for loss in verdict.losses] == [IDS[1], IDS[0]]
        largest = verdict.criteria[3]
        assert (largest.value, largest.note) == (pytest.approx(12.0), "2 problems lost more than 10 points")

    def test_a_pick_that_fails_now_loses_everything(self) -> None:
        largest = judged([0.0, 0.9], [0.9, 0.9]).criteria[3]
        assert (largest.value, largest.note) == (pytest.approx(90.0), "1 problem lost more than 10 points")

    def test_coverage_may_not_fall(self) -> None:
        verdict = judged([0.9, 0.9, None], [0.9, 0.9, 0.9])
        assert passed(verdict) == {**ALL_MET, "coverage": False}
        assert verdict.newly_uncovered == (IDS[2],)
        assert passed(judged([0.9, None, 0.9], [0.9, 0.9, None])) == ALL_MET

    def test_an_undecided_pick_is_measured_again_where_coverage_needs_it(self) -> None:
        selection, final = a_run([0.9, None])
        selection.loc[1, "coverage"] = "undecided"
        for points, state, again in ((0.0, "cannot tell", (IDS[1],)), (50.0, "passed", ())):
            verdict = judge(selection, final, baseline([0.9, 0.9]), Criteria(coverage_points=points))
            assert (verdict.state, verdict.undecided, verdict.suspects) == (state, (IDS[1],), again)

    def test_a_narrowed_run_needs_no_coverage_and_says_so(self) -> None:
        verdict = judged([0.9, None, None], [0.9, 0.9, 0.9], complete=False)
        assert (verdict.state, verdict.failed) == ("incomplete", False)
        assert passed(verdict) == {**ALL_MET, "coverage": None}
        assert verdict.message == "nothing failed, but not applied: coverage"

    def test_a_narrowed_run_can_still_fail(self) -> None:
        assert judged([0.5, None], [0.9, 0.9], complete=False).failed

    def test_only_problems_in_both_are_compared(self) -> None:
        selection, final = a_run([0.9, 0.9, 0.1])
        then = {IDS[0]: 0.9, IDS[1]: 0.9, IDS[9]: 0.1, IDS[8]: None}
        verdict = judge(selection, final, Baseline(**IDENTITY, efficiencies=then), Criteria())
        assert (verdict.state, verdict.compared) == ("passed", 2)
        assert verdict.new_problems == (IDS[2],)
        assert verdict.gone_problems == tuple(sorted([IDS[8], IDS[9]]))

    @pytest.mark.parametrize("then", [{IDS[9]: 0.9}, {IDS[0]: None, IDS[9]: 0.9}, {}])
    def test_a_baseline_with_nothing_in_common_does_not_pass(self, then: dict[str, float | None]) -> None:
        selection, final = a_run([0.9, 0.9])
        verdict = judge(selection, final, Baseline(**IDENTITY, efficiencies=then), Criteria())
        assert verdict.failed
        assert passed(verdict)["coverage"] is False
        assert passed(verdict)["mean"] is None

    def test_limits_can_be_changed(self) -> None:
        then, now = [0.9] * 4, [0.85] * 4
        assert judged(now, then).failed
        assert not judged(now, then, Criteria(mean_points=5, median_points=5, p10_points=5)).failed
        assert judged([0.9, None], [0.9, 0.9], Criteria(coverage_points=50)).state == "passed"

    def test_the_verdict_is_json(self) -> None:
        document = json.loads(json.dumps(judged([0.5, 0.9], [0.9, 0.9]).to_dict(), allow_nan=False))
        assert document["state"] == "failed"
        mean = document["criteria"][0]
        assert (mean["name"], mean["unit"], mean["passed"]) == ("mean", "%", False)
        assert (mean["value"], mean["baseline"], mean["limit"]) == pytest.approx((70.0, 90.0, 89.5))
        assert document["losses"][0]["loss_points"] == pytest.approx(40.0)


class TestFailures:
    def test_a_new_failure_fails(self) -> None:
        selection, final = a_run([0.9], [CRASH])
        verdict = judge(selection, final, baseline([0.9]), Criteria())
        assert passed(verdict) == {**ALL_MET, "new failures": False}
        (failure,) = verdict.new_failures
        assert (failure.problem, failure.kernel, failure.status) == (IDS[0], EXTRA.name, "crash")
        assert (failure.detail, failure.known) == ("signal 11", None)

    def test_a_known_failure_passes(self) -> None:
        known = {IDS[0]: {EXTRA.name: "crash"}}
        verdict = judge(*a_run([0.9], [CRASH]), baseline([0.9], known), Criteria())
        assert (verdict.state, verdict.new_failures) == ("passed", ())
        assert [failure.known for failure in verdict.known_failures] == ["crash"]

    def test_a_known_failure_that_fails_differently_is_reported(self) -> None:
        known = {IDS[0]: {EXTRA.name: "timeout"}}
        verdict = judge(*a_run([0.9], [CRASH]), baseline([0.9], known), Criteria())
        assert verdict.state == "passed"
        assert verdict.notes == ("known failures that now fail in another way: 1",)

    def test_a_healed_failure_is_reported(self) -> None:
        known = {IDS[0]: {EXTRA.name: "crash", BEST.name: "wrong"}, IDS[1]: {BEST.name: "wrong"}}
        verdict = judge(*a_run([0.9]), baseline([0.9], known), Criteria())
        assert [(f.problem, f.kernel, f.known) for f in verdict.healed] == [(IDS[0], BEST.name, "wrong")]

    def test_failures_of_the_machine_are_not_failures_of_a_kernel(self) -> None:
        rows = [
            record(PROBLEMS[0], EXTRA, status="noisy"),
            record(PROBLEMS[1], EXTRA, status="device_lost"),
            record(PROBLEMS[2], EXTRA, status="unsupported"),
        ]
        assert failures_of(final_measurements(frame(rows))).empty

    def test_the_most_severe_failure_comes_first(self) -> None:
        kernels = some_kernels(4, PROBLEMS[0])
        statuses = ["build_error", "timeout", "crash", "wrong"]
        rows = [record(PROBLEMS[0], k, status=s) for k, s in zip(kernels, statuses, strict=True)]
        assert failures_of(final_measurements(frame(rows)))["status"].tolist() == statuses[::-1]


class TestWithoutABaseline:
    def test_the_state_is_no_baseline(self) -> None:
        verdict = judge(*a_run([0.1], [CRASH]), None, Criteria())
        assert (verdict.state, verdict.failed, verdict.criteria) == ("no baseline", False, ())
        assert "--update-baseline" in verdict.message
        assert len(verdict.new_failures) == 1

    def test_without_a_model_there_is_nothing_to_judge(self) -> None:
        final = final_measurements(frame([record(PROBLEMS[0], BEST, 1.0)]))
        verdict = judge(select(PROBLEMS[:1], final, find_oracles(final), None), final, None, Criteria())
        assert (verdict.state, verdict.failed) == ("no model", False)

    def test_update_baseline_is_not_offered_without_an_efficiency(self) -> None:
        verdict = judge(*a_run([None]), None, Criteria())
        assert "--update-baseline" not in verdict.message
