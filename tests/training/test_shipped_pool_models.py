"""The shipped models of pools of an H200, besides gemm_rcr, and the figures of docs/gemm.md."""

from __future__ import annotations

import numpy as np
import pytest

from tile_oracle.data_files import data_folder
from tile_oracle.judge.baseline_file import load_baseline
from tile_oracle.kernel.named import is_named, parse_named_kernel
from tile_oracle.model.fitting_model import find_model_of
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.store import kernels_trained_on
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import read_rows
from tile_oracle.vendor.libraries import is_library_name

FIGURES = {
    "gemm_rrr_bf16_sm_90": ("gemm_rrr_validation", 64, 98.21, 92.67),
    "gemm_crr_bf16_sm_90": ("gemm_crr_validation", 64, 97.91, 93.92),
    "attention_fwd_bf16_sm_90": ("attention_validation", 76, 99.23, 99.18),
}
MODELS = data_folder("models")


@pytest.mark.parametrize("name", FIGURES)
def test_it_is_found_for_its_kernels(name: str) -> None:
    names = [one for one in kernels_trained_on(MODELS / name) if is_named(one) and not is_library_name(one)]
    for kind in {parse_named_kernel(one).kind for one in names}:
        of_kind = [one for one in names if parse_named_kernel(one).kind == kind]
        assert find_model_of(kind, "sm_90", named=of_kind) == MODELS / name
    assert read_spec(MODELS / name).ranks_named


@pytest.mark.parametrize("name", FIGURES)
def test_it_was_trained_on_no_problem_that_judges_it(name: str) -> None:
    judged = {problem.id for problem in load_problem_set(FIGURES[name][0]).problems}
    assert not judged & set(read_rows(MODELS / name / "training.parquet")["problem"])


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_of_the_documentation(name: str) -> None:
    problems, count, mean, p10 = FIGURES[name]
    (path,) = (MODELS / name).glob(f"*/{problems}/*.json")
    baseline = load_baseline(path)
    assert baseline is not None
    covered = [100 * value for value in baseline.efficiencies.values() if value is not None]
    assert len(covered) == count
    assert np.mean(covered) == pytest.approx(mean, abs=0.006)
    assert np.percentile(covered, 10) == pytest.approx(p10, abs=0.006)
