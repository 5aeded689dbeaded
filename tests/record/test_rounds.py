"""Pairs that were measured again in several rounds."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.record.final import final_measurements, latencies_over_rounds

PROBLEM = some_problems(1)[0]
A, B, C = some_kernels(3, PROBLEM)


def test_several_rounds_are_settled_by_their_median_without_noisy_ones() -> None:
    rows = [
        record(PROBLEM, A, 9.0),
        *(record(PROBLEM, A, t, round=r) for r, t in ((1, 2.0), (2, 8.0), (3, 2.5))),
    ]
    final = final_measurements(frame(rows))
    assert final["tflops"].tolist() == pytest.approx([2.5])
    assert final["latency_ms"].iloc[0] * 2.5 == pytest.approx(rows[0]["latency_ms"] * 9.0)
    assert (final["remeasured"].iloc[0], final["sweep_tflops"].iloc[0]) == (True, 9.0)
    rows = [record(PROBLEM, A, t, round=r) for r, t in ((0, 2.0), (1, 2.0), (2, 2.0), (3, 9.0))]
    rows += [record(PROBLEM, B, 3.0, round=r) for r in range(4)]
    assert find_oracles(final_measurements(frame(rows)))["oracle_kernel"].tolist() == [B.name]
    rows = [record(PROBLEM, A, 2.0), record(PROBLEM, A, 3.0, round=1)]
    rows.append(record(PROBLEM, A, 9.0, round=2, status="noisy"))
    assert final_measurements(frame(rows))["tflops"].tolist() == [3.0]


@given(
    st.lists(st.floats(0.5, 2.0), min_size=2, max_size=5),
    st.lists(st.floats(0.5, 2.0), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_an_effect_of_a_round_on_all_kernels_cancels_in_ratios(
    kernels: list[float], rounds: list[float], random: Random
) -> None:
    """The machine runs at another speed in each round, and not every kernel is timed in each."""
    table = np.outer(kernels, rounds)
    for kernel in range(1, len(kernels)):  # the first one is timed in every round
        for left_out in random.sample(range(len(rounds)), random.randrange(len(rounds))):
            table[kernel, left_out] = np.nan
    found = latencies_over_rounds(table)
    assert found / found[0] == pytest.approx(np.array(kernels) / kernels[0], rel=1e-4)


def test_a_disturbed_round_moves_nothing_and_kernels_of_one_round_are_compared_in_it() -> None:
    """Their own medians, and that of a kernel timed in all rounds, come from different rounds."""
    table = np.array([[2.0, 2.0, 1.0], [np.nan, np.nan, 1.0], [np.nan, np.nan, 1.0]])
    assert latencies_over_rounds(table) == pytest.approx([2.0, 2.0, 2.0])
    table = np.array([[1.0, 1.01, 0.99, 5.0, 1.0], [2.0, 2.0, 2.02, 1.99, 2.0]])
    assert latencies_over_rounds(table) == pytest.approx([1.0, 2.0], rel=0.006)


def test_a_kernel_that_was_timed_in_slow_rounds_only_is_not_slow() -> None:
    speed = {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5}
    rows = [record(PROBLEM, A, 2.0 * speed[one], round=one) for one in speed]
    rows += [record(PROBLEM, B, 2.2 * speed[one], round=one) for one in (3, 4)]
    final = final_measurements(frame(rows))
    tflops = final.set_index("kernel")["tflops"]
    assert tflops[B.name] / tflops[A.name] == pytest.approx(1.1)
    assert find_oracles(final)["oracle_kernel"].tolist() == [B.name]


def test_each_problem_is_settled_by_itself_and_kernels_of_the_sweep_stay() -> None:
    problems = [one for one in some_problems(9) if one.ndim == PROBLEM.ndim][:3]
    rows = [
        record(problem, kernel, tflops + 0.1 * round_ * place, round=round_)
        for place, problem in enumerate(problems)
        for kernel, tflops in ((A, 2.0), (B, 2.2 + place))
        for round_ in range(3 + place)
    ]
    once = [record(problem, C, 1.5) for problem in problems]
    whole = final_measurements(frame([*rows, *once])).set_index(["problem", "kernel"])
    for problem in problems:
        own = [row for row in rows if row["problem"] == problem.id]
        alone = final_measurements(frame(own)).set_index("kernel")["latency_ms"]
        for kernel in (A, B):
            assert whole.loc[(problem.id, kernel.name), "latency_ms"] == pytest.approx(alone[kernel.name])
        assert whole.loc[(problem.id, C.name), "tflops"] == 1.5
