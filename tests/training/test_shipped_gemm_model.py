"""The shipped model of GEMM on an H200: what it ranks, and the figures of docs/gemm.md."""

from __future__ import annotations

import pandas as pd
import pytest

from tile_oracle.data_files import data_folder
from tile_oracle.evaluation.candidates import rank_recorded
from tile_oracle.kernel.named import is_named
from tile_oracle.model.fitting_model import find_model_of
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import kernels_trained_on
from tile_oracle.oracle import final_measurements, find_oracles
from tile_oracle.problem import Kind
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import read_rows
from tile_oracle.record.merge import merge_records
from tile_oracle.selection import select, summarise
from tile_oracle.vendor.libraries import is_library_name

FOLDER = data_folder("models") / "gemm_rcr_bf16_sm_90"
SET = load_problem_set("gemm_validation_286")
(ORACLE,) = FOLDER.glob(f"*/{SET.name}/*.parquet")
KIND = Kind.of("gemm", dtype="bf16", layout="rcr")
NAMED = [name for name in kernels_trained_on(FOLDER) if is_named(name) and not is_library_name(name)]


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    return merge_records([read_rows(ORACLE)])[0]


def test_it_is_found_for_pools_with_kernels_of_other_sources_alone() -> None:
    assert find_model_of(KIND, "sm_90", named=NAMED) == FOLDER
    assert find_model_of(KIND, "sm_90") is None
    assert Predictor.load(FOLDER).ranks_named


def test_it_was_trained_on_no_product_that_judges_it(recorded: pd.DataFrame) -> None:
    training = read_rows(FOLDER / "training.parquet")
    sizes = {(problem.M, problem.N, problem.K) for problem in SET.problems}
    assert not sizes & set(zip(training["M"], training["N"], training["K"], strict=True))
    assert training["problem"].nunique() == 342
    assert set(recorded["problem"]) == {problem.id for problem in SET.problems}


def test_the_figures_of_the_documentation(recorded: pd.DataFrame) -> None:
    final = final_measurements(recorded)
    rankings = rank_recorded(Predictor.load(FOLDER), recorded)
    chosen = select(SET.problems, final, find_oracles(final), rankings)
    efficiency = summarise(chosen)
    assert efficiency.covered == 286
    assert efficiency.mean_percent == pytest.approx(97.68, abs=0.005)
    assert efficiency.median_percent == pytest.approx(100.0, abs=0.005)
    assert efficiency.p10_percent == pytest.approx(93.29, abs=0.005)
    assert 100 * chosen["efficiency_top_3"].mean() == pytest.approx(99.45, abs=0.005)
    assert 100 * chosen["efficiency_top_8"].mean() == pytest.approx(99.73, abs=0.005)
