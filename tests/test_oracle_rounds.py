"""Pairs that were measured again in several rounds."""

from __future__ import annotations

import pytest

from harness.oracle import final_measurements, find_oracles
from tests.report.records_factory import frame, record, some_kernels, some_problems

PROBLEM = some_problems(1)[0]
A, B = some_kernels(2, PROBLEM)


def test_several_rounds_are_settled_by_their_median() -> None:
    rows = [
        record(PROBLEM, A, 9.0),
        *(record(PROBLEM, A, t, round=r) for r, t in ((1, 2.0), (2, 8.0), (3, 2.5))),
    ]
    final = final_measurements(frame(rows))
    assert final["tflops"].tolist() == pytest.approx([2.5])
    assert final["latency_ms"].iloc[0] * 2.5 == pytest.approx(rows[0]["latency_ms"] * 9.0)
    assert (final["remeasured"].iloc[0], final["sweep_tflops"].iloc[0]) == (True, 9.0)


def test_one_lucky_round_makes_no_oracle() -> None:
    rows = [record(PROBLEM, A, t, round=r) for r, t in ((0, 2.0), (1, 2.0), (2, 2.0), (3, 9.0))]
    rows += [record(PROBLEM, B, 3.0, round=r) for r in range(4)]
    assert find_oracles(final_measurements(frame(rows)))["oracle_kernel"].tolist() == [B.name]


def test_a_noisy_round_says_nothing() -> None:
    rows = [record(PROBLEM, A, 2.0), record(PROBLEM, A, 3.0, round=1)]
    rows.append(record(PROBLEM, A, 9.0, round=2, status="noisy"))
    assert final_measurements(frame(rows))["tflops"].tolist() == [3.0]
