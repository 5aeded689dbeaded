"""Search beyond the pool, and choosing what to measure next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.exploration.exhaustive import Exhaustive
from tests.made_records import made_row, made_table, make_kernels, make_problems, make_records
from tile_oracle.arch import load_arch
from tile_oracle.cli import main
from tile_oracle.errors import ModelError
from tile_oracle.exploration.cold_start import OPENING, ColdStart
from tile_oracle.exploration.search import best_of, search
from tile_oracle.exploration.suggest import suggest, suggest_adapting, suggest_picks
from tile_oracle.features.columns import pair_columns
from tile_oracle.kernel import Kernel, NamedKernel, parse_kernel_name
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.roofline import RooflineModel
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.problem import Problem
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.final import problems_of
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train


@pytest.fixture(scope="module")
def predictor(records: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder: Path = tmp_path_factory.mktemp("models") / "m"
    train(records, recipe_named("physical"), n_splits=2).save(folder)
    return Predictor.load(folder)


def rankings_of(predictor: Predictor, problems: Sequence[Problem]) -> pd.DataFrame:
    rows = [
        (problem.id, kernel.name, tflops)
        for problem in problems
        for kernel, tflops in predictor.rank(problem, make_kernels())
    ]
    return pd.DataFrame(rows, columns=["problem", "kernel", "predicted_tflops"])


def test_every_kernel_found_can_be_built(predictor: Predictor) -> None:
    problem = make_problems(1, seed=4)[0]
    scores = search(predictor, problem, 120)
    assert len(scores) == 120
    arch = load_arch("gfx950")
    for name in scores:
        kernel = parse_kernel_name(name)
        assert arch.refusal(kernel) is None
        assert arch.problem_refusal(kernel, problem) is None
    assert [tflops for _, tflops in best_of(scores)] == sorted(scores.values(), reverse=True)
    assert all(scores[kernel.name] == tflops for kernel, tflops in best_of(scores))


def test_a_seed_gives_the_same_search(predictor: Predictor) -> None:
    problem = make_problems(1, seed=4)[0]
    whole = search(predictor, problem, 100, seed=3)
    assert search(predictor, problem, 100, seed=3) == whole
    assert search(predictor, problem, 100, seed=4) != whole
    with pytest.raises(ModelError, match="at least 1"):
        search(predictor, problem, 0)


@pytest.mark.slow
def test_the_search_beats_as_many_random_kernels(predictor: Predictor) -> None:
    """Those of a generation that is not evolved are drawn at random."""
    found, drawn = [], []
    for problem in make_problems(6, seed=4):
        found.append(max(search(predictor, problem, 400, seed=1).values()))
        drawn.append(max(max(search(predictor, problem, 20, seed=seed).values()) for seed in range(20)))
    assert np.mean(np.log(found)) > np.mean(np.log(drawn))


def test_suggestions_are_unmeasured_distinct_pairs(records: pd.DataFrame) -> None:
    problems = problems_of(records)
    measured = records[
        ~(records["problem"].isin([p.id for p in problems[:5]]) & records.index.to_series().mod(2).eq(0))
    ]
    found = suggest(measured, "gfx950", problems, make_kernels(), 12)
    pairs = set(zip(found["problem"], found["kernel"], strict=True))
    assert len(pairs) == 12
    assert not pairs & set(zip(measured["problem"], measured["kernel"], strict=True))
    assert found["rank"].tolist() == list(range(1, 13))
    again = suggest(measured, "gfx950", problems, make_kernels(), 12)
    pd.testing.assert_frame_equal(found, again)
    with pytest.raises(ModelError, match="nothing to suggest"):
        suggest(records, "gfx950", problems, make_kernels(), 5)
    with pytest.raises(ModelError, match="at least 1"):
        suggest(measured, "gfx950", problems, make_kernels(), 0)


def test_made_records_of_other_problems_are_not_needed() -> None:
    records = make_records(make_problems(25), make_kernels()[:4])
    found = suggest(records, "gfx950", make_problems(30)[25:], make_kernels()[:4], 3)
    assert set(found["problem"]) <= {p.id for p in make_problems(30)[25:]}


def test_a_models_first_picks_that_nobody_measured_come_problem_by_problem(
    records: pd.DataFrame, predictor: Predictor
) -> None:
    problems, kernels = problems_of(records)[:5], make_kernels()
    ranked = {p.id: [kernel.name for kernel, _ in predictor.rank(p, kernels)] for p in problems}
    first, third = ranked[problems[0].id][0], ranked[problems[1].id][2]
    gone = [(problems[0].id, first), (problems[1].id, third)]
    measured = pd.DataFrame(gone, columns=["problem", "kernel"])
    rankings = rankings_of(predictor, problems)
    found = suggest_picks(measured, rankings, 12)
    assert found["problem"].tolist() == [p.id for p in problems] * 2 + [p.id for p in problems[:2]]
    assert found["rank"].tolist() == [2, 1, 1, 1, 1, 3, 2, 2, 2, 2, 4, 4]
    for row in found.to_dict("records"):
        assert row["kernel"] == ranked[row["problem"]][row["rank"] - 1]
    everything = [(p.id, kernel.name) for p in problems for kernel in kernels]
    with pytest.raises(ModelError, match="nothing to suggest"):
        suggest_picks(pd.DataFrame(everything, columns=["problem", "kernel"]), rankings, 3)
    with pytest.raises(ModelError, match="at least 1"):
        suggest_picks(measured, rankings, 0)


def test_adapting_pairs_are_the_first_picks_of_few_problems(
    records: pd.DataFrame, predictor: Predictor
) -> None:
    problems, kernels = problems_of(records)[:12], make_kernels()
    ranked = {p.id: [kernel.name for kernel, _ in predictor.rank(p, kernels)] for p in problems}
    gone = pd.DataFrame([(p.id, ranked[p.id][0]) for p in problems], columns=["problem", "kernel"])
    rankings = rankings_of(predictor, problems)
    found = suggest_adapting(gone, rankings, 23)
    assert found.groupby("problem", sort=False).size().tolist() == [9, 9, 5]
    assert found["rank"].tolist() == [*range(2, 11), *range(2, 11), *range(2, 7)]
    for row in found.to_dict("records"):
        assert row["kernel"] == ranked[row["problem"]][row["rank"] - 1]
    assert len(suggest_adapting(gone, rankings, 999)) == 12 * 9


def test_the_command_takes_a_models_picks(
    records: pd.DataFrame, predictor: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = problems_of(records)[0].id
    timed = records.assign(time=pd.Timestamp("2026-01-01", tz="UTC"))
    write_dataset(timed[(timed["problem"] != one) | (timed.index % 2 == 0)], tmp_path / "m.parquet")
    words = ["suggest", str(tmp_path / "m.parquet"), "--model", str(predictor.folder)]
    assert main([*words, "--budget", "2", "--csv", str(tmp_path / "next.csv")]) == 0
    shown = capsys.readouterr().out.splitlines()
    written = pd.read_csv(tmp_path / "next.csv")
    assert written.columns.tolist() == ["problem", "kernel", "rank"]
    assert written["problem"].tolist() == [one, one]
    rows = written[["rank", "problem", "kernel"]].astype(str).to_numpy().tolist()
    assert [line.split() for line in shown[1:]] == rows
    assert main([*words, "--budget", "2", "--csv", "-"]) == 0
    assert capsys.readouterr().out == (tmp_path / "next.csv").read_text()
    assert main([*words, "--adapt", "--budget", "4", "--json"]) == 0
    assert [row["problem"] for row in json.loads(capsys.readouterr().out)] == [one] * 4
    assert main([*words[:2], "--csv", words[1]]) == 2
    assert "m.parquet is also an input: write to another file" in capsys.readouterr().err
    assert main([*words[:2], "--adapt"]) == 2
    assert "--adapt goes with --model" in capsys.readouterr().err
    write_dataset(timed.assign(arch="sm_90"), tmp_path / "m.parquet")
    assert main(words) == 2
    assert "is of gfx950, the records are of sm_90" in capsys.readouterr().err


# Cold starts and suggestions for pools with kernels of Triton files and libraries.

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
def products() -> pd.DataFrame:
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


def test_a_cold_start_opens_with_what_the_roofline_calls_fastest(products: pd.DataFrame) -> None:
    start = Exhaustive.of(products).start
    chosen, _ = start.choose(np.full(len(start.table), np.nan), OPENING * start.problems)
    expected = pd.Series(RooflineModel("sm_90").log_time(start.table, {}))
    least = expected.groupby(start.problem_of).min()
    assert np.allclose(expected[chosen[: start.problems]], least)


def test_trees_correct_the_roofline(products: pd.DataFrame) -> None:
    """Where times are the roofline's, its first kernels are the best, and little is expected of others."""
    start = Exhaustive.of(products).start
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


def test_it_is_better_than_random_choice(products: pd.DataFrame) -> None:
    exhaustive = Exhaustive.of(products)
    assert exhaustive.regret(5) < exhaustive.random_regret(5) / 2


def test_suggestions_ask_for_what_is_not_measured_and_may_be_fastest(products: pd.DataFrame) -> None:
    asked = suggest(products[products["problem"] != PROBLEMS[0].id], "sm_90", PROBLEMS, KERNELS, 20)
    assert set(asked["problem"]) == {PROBLEMS[0].id}
    of_problem = products[products["problem"] == PROBLEMS[0].id]
    assert of_problem.loc[of_problem["latency_ms"].idxmin(), "kernel"] in set(asked["kernel"])
