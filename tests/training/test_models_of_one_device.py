"""The shipped models that are taken on an H200 alone, where the H100's of the same kind lose."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.training.shipped_models import recorded, selection_of, shipped
from tile_oracle.judge.selection import summarise
from tile_oracle.model.fitting_model import models_for, pool_of_model
from tile_oracle.problem import Kind
from tile_oracle.problem_set import load_problem_set

FIGURES = {
    "fused_gemm_bf16_sm_90": ("fused_gemm_validation", 42, 98.60, 95.56, 98.29, 92.09),
    "fused_moe_bf16_sm_90": ("fused_moe_validation", 117, 98.30, 95.27, 97.59, 91.42),
    "fused_moe_fp8_e4m3_sm_90": ("fused_moe_fp8_validation", 64, 99.04, 95.79, 95.99, 87.86),
}
"""The H100's model -> set, problems; mean and P10 in percent of the H200's model, and of the H100's there."""


def kind_of(problem_set: str) -> Kind:
    return load_problem_set(problem_set).problems[0].kind


@pytest.mark.parametrize("model", FIGURES)
def test_it_is_taken_on_its_device(model: str) -> None:
    kind = kind_of(FIGURES[model][0])
    own = pool_of_model(shipped(model), kind)
    for device, name in (("NVIDIA H100 80GB HBM3", model), ("NVIDIA H200", f"{model}_h200")):
        assert models_for(kind, "sm_90", kernels=own, device=device).folder == shipped(name)


@pytest.mark.parametrize("model", FIGURES)
def test_it_was_trained_on_no_problem_that_judges_it(model: str) -> None:
    training = pd.read_parquet(shipped(f"{model}_h200") / "training.parquet", columns=["problem", "device"])
    assert set(training["device"].dropna()) == {"NVIDIA H200"}
    assert not set(training["problem"]) & {one.id for one in load_problem_set(FIGURES[model][0]).problems}


@pytest.mark.parametrize("model", FIGURES)
def test_it_picks_better_there_than_the_other(model: str) -> None:
    name, count, *figures = FIGURES[model]
    records = recorded(*shipped(f"{model}_h200").glob(f"*/{name}/*.parquet"))
    found = []
    for folder in (f"{model}_h200", model):
        efficiency = summarise(selection_of(shipped(folder), records))
        assert efficiency.covered == count
        found += [efficiency.mean_percent, efficiency.p10_percent]
    assert found == pytest.approx(figures, abs=0.0051)
