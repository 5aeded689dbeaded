"""Which kernel is the oracle of a problem."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.record.final import final_measurements
from tile_oracle.record.schema import STATUSES

PROBLEM, OTHER = some_problems(2)
KERNELS = some_kernels(6, PROBLEM)
A, B, C = KERNELS[:3]


def oracle_of(*rows: dict[str, Any]) -> pd.Series:
    oracles = find_oracles(final_measurements(frame(rows)))
    assert len(oracles) == 1
    return oracles.iloc[0]


class TestOracle:
    def test_the_fastest_ok_kernel(self) -> None:
        row = oracle_of(
            record(PROBLEM, A, 1.0), record(PROBLEM, B, 3.0), record(PROBLEM, C, 9.0, status="noisy")
        )
        assert (row["oracle_kernel"], row["oracle_tflops"]) == (B.name, 3.0)
        assert row["oracle_latency_ms"] == pytest.approx(PROBLEM.flops / 3e9)

    def test_a_flattering_first_number_does_not_beat_leaders_measured_again(self) -> None:
        row = oracle_of(
            record(PROBLEM, A, 3.0),
            record(PROBLEM, B, 2.9),
            record(PROBLEM, A, 2.0, round=1),
            record(PROBLEM, B, 2.2, round=1),
            record(PROBLEM, C, 2.8),
        )
        assert (row["oracle_kernel"], row["oracle_tflops"], row["oracle_remeasured"]) == (B.name, 2.2, True)

    def test_the_oracle_by_the_sweep_alone(self) -> None:
        row = oracle_of(
            record(PROBLEM, A, 3.0),
            record(PROBLEM, B, 2.9),
            record(PROBLEM, A, 2.0, round=1),
            record(PROBLEM, B, 2.5, round=1),
        )
        assert row["sweep_winner"] == A.name
        assert row["sweep_winner_efficiency"] == pytest.approx(0.8)

    def test_leaders_that_all_failed_again_leave_the_rest(self) -> None:
        row = oracle_of(
            record(PROBLEM, A, 3.0), record(PROBLEM, A, status="wrong", round=1), record(PROBLEM, B, 1.0)
        )
        assert row["oracle_kernel"] == B.name
        assert not row["oracle_remeasured"]

    def test_equal_figures_go_to_the_first_name(self) -> None:
        first, second = sorted([A.name, B.name])
        for order in ((A, B), (B, A)):
            assert oracle_of(*(record(PROBLEM, k, 2.0) for k in order))["oracle_kernel"] == first
        assert first != second

    def test_a_problem_without_an_ok_kernel_is_listed(self) -> None:
        row = oracle_of(record(PROBLEM, A, status="crash"), record(PROBLEM, B, status="unsupported"))
        assert row["problem"] == PROBLEM.id
        assert row["oracle_kernel"] is None or pd.isna(row["oracle_kernel"])
        assert pd.isna(row["oracle_tflops"])
        counts = {name: row[f"kernels_{name}"] for name in STATUSES}
        assert counts == {**dict.fromkeys(STATUSES, 0), "crash": 1, "unsupported": 1}

    def test_the_spread_of_the_pool(self) -> None:
        row = oracle_of(
            *(record(PROBLEM, k, t) for k, t in zip(KERNELS, (1.0, 2.0, 8.0), strict=False)),
            record(PROBLEM, KERNELS[3], status="timeout"),
        )
        assert (row["median_tflops"], row["worst_tflops"], row["worst_kernel"]) == (2.0, 1.0, A.name)
        assert row["kernels_measured"] == 4
