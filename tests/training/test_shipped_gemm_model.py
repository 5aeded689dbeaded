"""The shipped models of GEMM on an H200: what they rank, and the published figures."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.samples import slow
from tests.training.shipped_models import accepted_percent, recorded, selection_of, shipped
from tile_oracle.judge.selection import summarise
from tile_oracle.model.fitting_model import models_for, pool_of_model
from tile_oracle.model.predictor import Predictor
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind
from tile_oracle.problem_set import load_problem_set

BF16, FP16, H100 = "gemm_bf16_sm_90", "gemm_fp16_sm_90", "gemm_bf16_sm_90_h100"
SETS = {
    "rcr": (BF16, "gemm_validation_286"),
    "rrr": (BF16, "gemm_rrr_validation"),
    "crr": (BF16, "gemm_crr_validation"),
    "fp16": (FP16, "gemm_fp16_validation"),
}
FIGURES = {
    "rcr": (286, 98.98, 100.0, 97.25, 99.61, 99.96),
    "rrr": (64, 98.80, 99.75, 97.27, 99.54, 99.99),
    "crr": (64, 97.96, 99.91, 95.33, 99.56, 99.88),
    "fp16": (32, 98.78, 100.0, 96.55, 99.56, 99.94),
    "H100": (60, 98.66, 99.90, 96.22, 99.74, 99.89),
}
"""Problems; mean, median and P10 of the efficiency in percent; mean of the best of 3 and of 8."""
TRAINED = {BF16: 3331, FP16: 194, H100: 587}
"""Training problems of the model's own data type."""


@pytest.mark.parametrize("case", SETS)
def test_it_is_found_for_pools_with_kernels_of_other_sources_alone(case: str) -> None:
    model, name = SETS[case]
    first = load_problem_set(name).problems[0].as_row()
    kind = Kind.of("gemm", dtype=str(first["dtype"]), layout=str(first["layout"]))
    own = pool_of_model(shipped(model), kind)
    assert models_for(kind, "sm_90", kernels=own).folder == shipped(model)
    native = models_for(kind, "sm_90", kernels=pool_of_kind(kind, "sm_90"))
    assert native.folder is None
    assert f"{model} knows the functions of " in native.why_none
    assert Predictor.load(shipped(model)).ranks_named


@pytest.mark.parametrize("model", TRAINED)
def test_it_was_trained_on_no_product_that_judges_it(model: str) -> None:
    training = pd.read_parquet(shipped(model) / "training.parquet", columns=["problem", "M", "N", "K"])
    trained = set(zip(training["M"], training["N"], training["K"], strict=True))
    assert training["problem"].nunique() == TRAINED[model]
    for _, name in SETS.values():
        assert not trained & {(one.M, one.N, one.K) for one in load_problem_set(name).problems}


def test_the_one_of_another_device_is_taken_there() -> None:
    kind = Kind.of("gemm", dtype="bf16", layout="rcr")
    own = pool_of_model(shipped(H100), kind)
    for device, model in (("NVIDIA H100 80GB HBM3", H100), ("NVIDIA H200", BF16)):
        assert models_for(kind, "sm_90", kernels=own, device=device).folder == shipped(model)


@pytest.mark.parametrize("case", [*slow("rcr", "rrr", "crr", "H100"), "fp16"])
def test_the_figures_of_the_documentation(case: str) -> None:
    model, name = SETS.get(case, (H100, "gemm_validation_286"))
    (oracle,) = shipped(model).glob(f"*/{name}/*.parquet")
    chosen = selection_of(shipped(model), recorded(oracle))
    ids = {problem.id for problem in load_problem_set(name).problems}
    assert set(chosen["problem"]) <= ids if model == H100 else set(chosen["problem"]) == ids
    efficiency = summarise(chosen)
    figures = [
        efficiency.mean_percent,
        efficiency.median_percent,
        efficiency.p10_percent,
        *(100 * chosen[f"efficiency_top_{count}"].mean() for count in (3, 8)),
    ]
    count, *expected = FIGURES[case]
    assert efficiency.covered == count
    assert figures == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize("case", SETS)
def test_its_baseline_is_of_these_picks(case: str) -> None:
    model, name = SETS[case]
    covered = accepted_percent(shipped(model), name)
    assert (len(covered), sum(covered) / len(covered)) == pytest.approx(FIGURES[case][:2], abs=0.0051)
