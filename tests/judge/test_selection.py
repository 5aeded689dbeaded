"""Picks and their efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.errors import ModelError
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import fixed_kernels, kernel_table, select, summarise
from tile_oracle.judge.slices import slice_table, slices_of
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import problem_from_id
from tile_oracle.record.final import final_measurements
from tile_oracle.report.wording import why

PROBLEM, OTHER, THIRD, FOURTH = some_problems(4)
KERNELS = some_kernels(12, PROBLEM)
A, B, C, D = KERNELS[:4]


def ranking(problem: GroupedConvProblem, predicted: Mapping[GroupedConvKernel, float]) -> pd.DataFrame:
    rows = [(problem.id, kernel.name, tflops) for kernel, tflops in predicted.items()]
    return pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])


def selection(
    rows: Sequence[dict[str, Any]],
    rankings: pd.DataFrame | None,
    problems: Sequence[GroupedConvProblem] = (PROBLEM,),
) -> pd.DataFrame:
    final = final_measurements(frame(rows))
    return select(problems, final, find_oracles(final), rankings)


def one(rows: Sequence[dict[str, Any]], predicted: Mapping[GroupedConvKernel, float]) -> pd.Series:
    return selection(rows, ranking(PROBLEM, predicted)).iloc[0]


THREE = [record(PROBLEM, A, 1.0), record(PROBLEM, B, 4.0), record(PROBLEM, C, 2.0)]


class TestEfficiency:
    def test_tflops_of_the_pick_over_those_of_the_oracle(self) -> None:
        row = one(THREE, {A: 3.0, B: 5.0, C: 9.0})
        assert (row["pick_kernel"], row["oracle_kernel"], row["coverage"]) == (C.name, B.name, "covered")
        assert row["efficiency"] == pytest.approx(0.5)
        assert (row["oracle_rank"], row["oracle_predicted_tflops"]) == (2, 5.0)
        assert (row["pick_predicted_tflops"], row["pick_tflops"]) == (9.0, 2.0)

    def test_a_kernel_as_fast_as_the_oracle(self) -> None:
        row = one([*THREE, record(PROBLEM, D, 4.0)], {D: 1.0} if B.name < D.name else {B: 1.0, D: 0.5})
        assert (row["efficiency"], row["pick_flattered"]) == (1.0, False)
        assert row["oracle_kernel"] == min(B.name, D.name)

    @pytest.mark.parametrize("status", ["unsupported", "build_error", "wrong", "flaky", "crash", "timeout"])
    def test_a_pick_that_is_not_ok_is_worth_nothing(self, status: str) -> None:
        row = one([*THREE, record(PROBLEM, D, 9.0, status=status, detail="so")], {A: 1.0, B: 2.0, D: 3.0})
        assert (row["efficiency"], row["pick_status"], row["pick_detail"]) == (0.0, status, "so")
        assert row["coverage"] == "covered"

    @pytest.mark.parametrize("status", ["device_lost", "noisy"])
    def test_a_fault_of_the_machine_leaves_the_problem_undecided(self, status: str) -> None:
        row = one([*THREE, record(PROBLEM, D, 9.0, status=status)], {A: 1.0, B: 2.0, D: 3.0})
        assert (row["coverage"], row["pick_status"]) == ("undecided", status)
        assert np.isnan(row["efficiency"])

    def test_a_pick_above_the_oracle_is_the_oracle_if_the_sweep_agrees(self) -> None:
        rows = [record(PROBLEM, A, 2.4), record(PROBLEM, A, 2.0, round=1), record(PROBLEM, B, 2.5)]
        row = one(rows, {B: 1.0})
        assert (row["oracle_kernel"], row["oracle_tflops"]) == (B.name, 2.5)
        assert (row["efficiency"], row["pick_flattered"], row["oracle_rank"]) == (1.0, True, 1)

    def test_a_pick_measured_once_is_compared_by_the_sweep_where_its_oracle_slowed_down(self) -> None:
        row = one(
            [record(PROBLEM, A, 3.0), record(PROBLEM, A, 2.0, round=1), record(PROBLEM, B, 2.5)], {B: 1.0}
        )
        assert (row["oracle_kernel"], row["pick_flattered"]) == (A.name, True)
        assert row["efficiency"] == pytest.approx(2.5 / 3.0)

    def test_equal_predictions_pick_the_first_name(self) -> None:
        first = min(A.name, B.name)
        assert one(THREE, {A: 1.0, B: 1.0})["pick_kernel"] == first
        assert one(THREE, {B: 1.0, A: 1.0})["pick_kernel"] == first


class TestCensored:
    def test_a_pick_that_had_lost_says_so(self) -> None:
        lost = {**record(PROBLEM, A, 0.2), "sampling": "censored"}
        lost["at_least_ms"] = 0.8 * lost["latency_ms"]
        row = one([lost, record(PROBLEM, B, 1.0)], {A: 2.0, B: 1.0})
        assert row["efficiency"] == pytest.approx(0.2)
        assert row["pick_at_least_ms"] == lost["at_least_ms"]
        assert "an efficiency of at most 25.0 %" in why(row)
        assert "at most" not in why(one([record(PROBLEM, A, 0.2), record(PROBLEM, B, 1.0)], {A: 2.0, B: 1.0}))


class TestCoverage:
    def test_a_pick_that_was_not_measured_is_not_counted_as_nothing(self) -> None:
        row = one(THREE, {A: 1.0, D: 9.0})
        assert (row["coverage"], row["pick_kernel"]) == ("pick not measured", D.name)
        assert pd.isna(row["efficiency"])
        assert pd.isna(row["efficiency_top_2"])

    def test_every_reason_is_listed(self) -> None:
        rows = [*THREE, record(OTHER, A, status="crash"), record(FOURTH, A, status="untimed")]
        table = selection(rows, ranking(OTHER, {A: 1.0}), [PROBLEM, OTHER, THIRD, FOURTH])
        assert table["coverage"].tolist() == ["not ranked", "no ok kernel", "not measured", "not timed"]
        assert table["problem"].tolist() == [PROBLEM.id, OTHER.id, THIRD.id, FOURTH.id]

    def test_without_a_model_there_are_oracles_only(self) -> None:
        table = selection(THREE, None, [PROBLEM, THIRD])
        assert table["coverage"].tolist() == ["no model", "not measured"]
        assert table["oracle_kernel"].tolist()[0] == B.name
        assert table["pick_kernel"].isna().all()


class TestMeasureTheTopK:
    def test_the_best_of_the_first_k(self) -> None:
        row = one(THREE, {A: 9.0, C: 8.0, B: 7.0})
        assert [row[f"efficiency_top_{k}"] for k in (1, 2, 3, 4, 10)] == [0.25, 0.5, 1.0, 1.0, 1.0]

    def test_failed_and_unmeasured_kernels_add_nothing(self) -> None:
        rows = [*THREE, record(PROBLEM, D, status="crash")]
        row = one(rows, {D: 9.0, A: 8.0, KERNELS[5]: 7.0, C: 6.0})
        assert [row[f"efficiency_top_{k}"] for k in (1, 2, 3, 4)] == [0.0, 0.25, 0.25, 0.5]

    def test_only_the_first_ten(self) -> None:
        rows = [record(PROBLEM, kernel, 1.0 + i) for i, kernel in enumerate(KERNELS)]
        row = one(rows, {kernel: 100.0 - i for i, kernel in enumerate(KERNELS)})
        assert row["oracle_rank"] == 12
        assert row["efficiency_top_10"] == pytest.approx(10 / 12)


class TestFigures:
    def test_by_hand(self) -> None:
        problems = some_problems(4)
        rows, rankings = [], []
        for problem, pick, best in zip(problems, (1.0, 2.0, 3.0, 4.0), (4.0, 4.0, 4.0, 4.0), strict=True):
            rows += [record(problem, A, pick), record(problem, B, best)]
            rankings.append(ranking(problem, {A: 2.0, B: 1.0}))
        chosen = selection(rows, pd.concat(rankings), problems)
        (first,) = slice_table(chosen, {"first": [True, True, False, False], "none": [False] * 4}).to_numpy()
        assert first.tolist() == ["first", 2, 2, *map(pytest.approx, (37.5, 27.5, 25.0, 22 / 15))]
        figures = summarise(chosen)
        assert figures.mean_percent == pytest.approx(62.5)
        assert figures.median_percent == pytest.approx(62.5)
        assert figures.p10_percent == pytest.approx(32.5)  # linear between 25 and 50
        assert figures.min_percent == pytest.approx(25.0)
        # In the last problem both are equally fast, and the first name is the oracle.
        assert figures.top_1_percent == pytest.approx(25.0 if A.name < B.name else 0.0)
        assert figures.top_5_percent == pytest.approx(100.0)
        assert figures.measure_top_percent == pytest.approx((62.5, *[100.0] * 9))
        assert figures.coverage_percent == pytest.approx(100.0)

    def test_problems_that_are_not_covered_do_not_count(self) -> None:
        rankings = pd.concat([ranking(PROBLEM, {C: 1.0}), ranking(OTHER, {D: 1.0})])
        figures = summarise(selection([*THREE, record(OTHER, A, 1.0)], rankings, [PROBLEM, OTHER]))
        assert (figures.problems, figures.covered, figures.mean_percent) == (2, 1, 50.0)
        assert figures.coverage_percent == 50.0


class TestKernels:
    def test_wins_picks_and_mean_efficiency(self) -> None:
        rows = [*THREE, record(OTHER, B, 1.0), record(OTHER, C, 4.0), record(OTHER, A, status="crash")]
        rankings = pd.concat([ranking(PROBLEM, {B: 1.0}), ranking(OTHER, {B: 1.0})])
        final = final_measurements(frame(rows))
        table = kernel_table(final, select([PROBLEM, OTHER], final, find_oracles(final), rankings))
        by_name = table.set_index("kernel")
        assert by_name.loc[B.name, ["oracles", "picks", "ok", "not_ok"]].tolist() == [1, 2, 2, 0]
        assert by_name.loc[A.name, ["oracles", "picks", "ok", "not_ok"]].tolist() == [0, 0, 1, 1]
        assert slices_of(problem_from_id("forward-bf16-n1-g8-c8-k8-i5x5-f3x3")) == ("3x3", "depthwise")
        assert by_name.loc[B.name, "mean_efficiency"] == pytest.approx((1.0 + 0.25) / 2)
        assert table["oracles"].is_monotonic_decreasing
        assert table.index.tolist() == [0, 1, 2]

    def test_one_kernel_for_all_counts_nothing_where_it_is_not_ok(self) -> None:
        rows = [*THREE, record(OTHER, B, 1.0), record(OTHER, C, 4.0), record(THIRD, A, 1.0)]
        rows.append(record(THIRD, C, status="crash"))
        final = final_measurements(frame(rows))
        problems = [PROBLEM, OTHER, THIRD]
        chosen = fixed_kernels(final, select(problems, final, find_oracles(final), None))["ratio"]
        # C: 0.5 + 1 + 0; B: 1 + 0.25 + 0; A: 0.25 + 0 + 1.
        assert chosen.to_dict() == {PROBLEM.id: 0.5, OTHER.id: 1.0, THIRD.id: 0.0}


class TestBadRankings:
    def test_missing_columns(self) -> None:
        with pytest.raises(ModelError, match="lack the column predicted_tflops"):
            selection(THREE, pd.DataFrame({"problem": [], "kernel": []}))

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "fast"])
    def test_a_prediction_that_is_not_a_number(self, value: object) -> None:
        rankings = ranking(PROBLEM, {A: 1.0}).astype(object)
        rankings.loc[0, "predicted_tflops"] = value
        with pytest.raises(ModelError, match=f"no finite TFLOPS for {A.name} on {PROBLEM.id}"):
            selection(THREE, rankings)

    def test_a_pair_twice(self) -> None:
        twice = pd.concat([ranking(PROBLEM, {A: 1.0}), ranking(PROBLEM, {A: 2.0})])
        with pytest.raises(ModelError, match="twice"):
            selection(THREE, twice)

    def test_problems_of_another_set_are_left_aside(self) -> None:
        rankings = pd.concat([ranking(PROBLEM, {B: 1.0}), ranking(OTHER, {A: 1.0})])
        assert selection(THREE, rankings)["problem"].tolist() == [PROBLEM.id]
