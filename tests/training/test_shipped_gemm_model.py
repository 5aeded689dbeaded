"""The shipped model of GEMM on an H200: what it ranks, and the figures of docs/gemm.md."""

from __future__ import annotations

import pandas as pd
import pytest

from tile_oracle.data_files import data_folder
from tile_oracle.evaluation.candidates import rank_recorded
from tile_oracle.judge.baseline_file import load_baseline
from tile_oracle.kernel.named import is_named, parse_named_kernel
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

FOLDER = data_folder("models") / "gemm_bf16_sm_90"
SETS = {"rcr": "gemm_validation_286", "rrr": "gemm_rrr_validation", "crr": "gemm_crr_validation"}
FIGURES = {
    "rcr": (286, 98.38, 100.0, 95.71, 99.44, 99.99),
    "rrr": (64, 98.63, 99.98, 96.94, 99.52, 99.95),
    "crr": (64, 97.06, 100.0, 90.69, 99.01, 99.86),
}
"""Problems; mean, median and P10 of the efficiency in percent; mean of the best of 3 and of 8."""
NAMED = [name for name in kernels_trained_on(FOLDER) if is_named(name) and not is_library_name(name)]


def recorded(layout: str) -> pd.DataFrame:
    (oracle,) = FOLDER.glob(f"*/{SETS[layout]}/*.parquet")
    return merge_records([read_rows(oracle)])[0]


@pytest.mark.parametrize("layout", SETS)
def test_it_is_found_for_pools_with_kernels_of_other_sources_alone(layout: str) -> None:
    kind = Kind.of("gemm", dtype="bf16", layout=layout)
    named = [name for name in NAMED if parse_named_kernel(name).kind == kind]
    assert named
    assert find_model_of(kind, "sm_90", named=named) == FOLDER
    assert find_model_of(kind, "sm_90") is None
    assert Predictor.load(FOLDER).ranks_named


def test_it_was_trained_on_no_product_that_judges_it() -> None:
    training = read_rows(FOLDER / "training.parquet")
    trained = set(zip(training["M"], training["N"], training["K"], strict=True))
    assert training["problem"].nunique() == 602
    for name in SETS.values():
        assert not trained & {(one.M, one.N, one.K) for one in load_problem_set(name).problems}


@pytest.mark.parametrize("layout", [pytest.param("rcr", marks=pytest.mark.slow), "rrr", "crr"])
def test_the_figures_of_the_documentation(layout: str) -> None:
    records, problems = recorded(layout), load_problem_set(SETS[layout]).problems
    assert set(records["problem"]) == {problem.id for problem in problems}
    final = final_measurements(records)
    rankings = rank_recorded(Predictor.load(FOLDER), records)
    chosen = select(problems, final, find_oracles(final), rankings)
    efficiency = summarise(chosen)
    figures = [
        efficiency.mean_percent,
        efficiency.median_percent,
        efficiency.p10_percent,
        *(100 * chosen[f"efficiency_top_{count}"].mean() for count in (3, 8)),
    ]
    count, *expected = FIGURES[layout]
    assert efficiency.covered == count
    assert figures == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize("layout", SETS)
def test_its_baseline_is_of_these_picks(layout: str) -> None:
    (path,) = FOLDER.glob(f"*/{SETS[layout]}/*.json")
    baseline = load_baseline(path)
    assert baseline is not None
    covered = [100 * value for value in baseline.efficiencies.values() if value is not None]
    assert (len(covered), sum(covered) / len(covered)) == pytest.approx(FIGURES[layout][:2], abs=0.0051)
