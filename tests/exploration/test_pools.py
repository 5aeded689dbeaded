"""Cold starts and suggestions for pools with kernels of Triton files and libraries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.exploration.exhaustive import Exhaustive
from tests.made_records import made_row, made_table
from tile_oracle.exploration.cold_start import OPENING, ColdStart
from tile_oracle.exploration.suggest import suggest
from tile_oracle.features.columns import pair_columns
from tile_oracle.kernel import Kernel, NamedKernel, parse_kernel_name
from tile_oracle.model.roofline import RooflineModel
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import GemmProblem

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")
PROBLEMS = [GemmProblem("bf16", "rcr", m, n, 2048) for m in (1, 16, 128, 2048) for n in (512, 2048, 8192)]


def triton(rows: int, columns: int) -> NamedKernel:
    values = {"BLOCK_K": 64, "BLOCK_M": rows, "BLOCK_N": columns, "num_stages": 4, "num_warps": 4}
    return NamedKernel(KIND, "triton", "tiles", tuple(values.items()))


KERNELS: list[Kernel] = [
    parse_kernel_name(
        "gemm_bf16_rcr_comp_async_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16"
    ),
    *(triton(rows, columns) for rows in (16, 64, 128) for columns in (64, 128, 256)),
    *(NamedKernel(KIND, "cublaslt", "a66", (("stages", 35), ("tile", tile))) for tile in (5, 15, 18, 20)),
]


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    """Every pair once, as fast as the roofline says, but for a factor of each kernel. Two kernels agree."""
    rows = pd.DataFrame(pair_columns(PROBLEMS, KERNELS))
    factor = np.random.default_rng(0).uniform(1.0, 2.0, len(KERNELS))
    times_ms = np.exp(RooflineModel("sm_90").log_time(rows, {})).reshape(len(PROBLEMS), -1) * factor
    times_ms[:, 2] = times_ms[:, 1]
    made = [
        made_row(problem, kernel, latency, "sm_90", samples=10)
        for problem, of_problem in zip(PROBLEMS, times_ms, strict=True)
        for kernel, latency in zip(KERNELS, of_problem, strict=True)
    ]
    return made_table(made, "gemm")


def test_a_cold_start_opens_with_what_the_roofline_calls_fastest(records: pd.DataFrame) -> None:
    start = Exhaustive.of(records).start
    chosen, _ = start.choose(np.full(len(start.table), np.nan), OPENING * start.problems)
    expected = pd.Series(RooflineModel("sm_90").log_time(start.table, {}))
    least = expected.groupby(start.problem_of).min()
    assert np.allclose(expected[chosen[: start.problems]], least)


def test_trees_correct_the_roofline(records: pd.DataFrame) -> None:
    """Where times are the roofline's, its first kernels are the best, and little is expected of others."""
    start = Exhaustive.of(records).start
    exact = np.exp(RooflineModel("sm_90").log_time(start.table, {}))
    known = np.full(len(start.table), np.nan)
    chosen, _ = start.choose(known, OPENING * start.problems)
    known[chosen] = exact[chosen]
    _, regret = start.choose(known, 1)
    assert regret < 0.05
    cpu = ColdStart(start.table, "cpu")
    assert cpu._roofline is None
    assert np.ptp(cpu._level[: len(KERNELS)]) == 0, "no peak rates: ln(operations)"


def test_what_fails_for_a_kind_of_problem_is_not_tried_on_others_of_it() -> None:
    """Kernels with tiles of 16 rows refuse few rows; half of the problems tell of the others."""
    problems = [GemmProblem("bf16", "rcr", m, 512 * n, 2048) for m in (1, 4, 64, 256) for n in range(1, 9)]
    start = ColdStart.of(problems, KERNELS, "sm_90")
    rows = start.table["M"].to_numpy()
    small = start.table["kernel"].str.contains("BLOCK_M=16.").to_numpy()
    times = np.exp(RooflineModel("sm_90").log_time(start.table, {}))
    times[small & (rows <= 4)] = np.inf
    known = np.where(start.problem_of % 2 == 0, times, np.nan)
    chance = start._works(known)
    there = np.isnan(known) & small
    assert chance[there & (rows <= 4)].max() < 0.3
    assert chance[there & (rows > 4)].min() > 0.7
    assert (start._works(np.where(np.isfinite(known), known, np.nan)) == 1).all(), "nothing failed"


def test_it_is_better_than_random_choice(records: pd.DataFrame) -> None:
    exhaustive = Exhaustive.of(records)
    assert exhaustive.regret(5) < exhaustive.random_regret(5) / 2


def test_suggestions_ask_for_what_is_not_measured_and_may_be_fastest(records: pd.DataFrame) -> None:
    asked = suggest(records[records["problem"] != PROBLEMS[0].id], "sm_90", PROBLEMS, KERNELS, 20)
    assert set(asked["problem"]) == {PROBLEMS[0].id}
    of_problem = records[records["problem"] == PROBLEMS[0].id]
    assert of_problem.loc[of_problem["latency_ms"].idxmin(), "kernel"] in set(asked["kernel"])
