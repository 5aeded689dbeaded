"""The shipped H200 models of convolutions: what they were trained on, and the published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.training.shipped_models import recorded, selection_of, shipped
from tile_oracle.judge.selection import summarise
from tile_oracle.model.fitting_model import models_for
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset import read_rows
from tile_oracle.training.training_rows import not_of_shapes

PUBLISHED_VOLUME = {"forward": 48_845, "bwd_data": 18_773, "bwd_weight": 34_900}
"""Measurements behind the published models."""

FIGURES = {
    "forward_unseen_300": (98.83, 100.0, 96.47),
    "bwd_data_validation_300": (99.08, 100.0, 97.05),
    "bwd_weight_validation_300": (98.76, 100.0, 97.18),
}
"""Mean, median and P10 over a validation set, in percent."""


NVCC_FIGURES = {"forward": (98.55, 96.72), "bwd_data": (99.04, 95.79), "bwd_weight": (98.70, 96.60)}
"""Mean and P10 over problems that no training has seen, of kernels built by nvcc on an H100, in percent."""


@pytest.fixture(params=DIRECTIONS)
def direction(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(direction: str) -> Path:
    return shipped(folder_name(direction))


def folder_name(direction: str) -> str:
    return f"grouped_conv_{direction}_bf16_sm_90"


def sets_of(direction: str) -> list[str]:
    """The problem sets that the direction's model is judged by."""
    return [f"{direction}_validation_300", *(["forward_unseen_300"] if direction == "forward" else [])]


def elsewhere(folder: Path) -> pd.DataFrame:
    """The measurements of kernels built by nvcc on an H100."""
    (path,) = folder.glob("nvidia-h100-*/*/default.parquet")
    return recorded(path)


def oracle(folder: Path, *names: str) -> pd.DataFrame:
    """The measurements of these problem sets on an H200."""
    paths = [path for name in names for path in folder.glob(f"nvidia-h200-*/{name}/default.parquet")]
    assert len(paths) == len(names)
    return recorded(*paths)


def test_the_shipped_model_is_found(direction: str, folder: Path) -> None:
    kind = Kind.of("grouped_conv", direction=direction, dtype="bf16", ndim=2)
    assert models_for(kind, "sm_90", kernels=pool_of_kind(kind, "sm_90")).folder == folder


@pytest.mark.slow
def test_no_auxiliary_row_is_of_a_validation_problem(direction: str, folder: Path) -> None:
    grown = json.loads((folder / "train_manifest.json").read_text())
    manifest = grown["warm_start_manifest"]
    assert set(manifest["taught_by"]) == set(DIRECTIONS) - {direction}
    held_out = oracle(folder, *sets_of(direction)).drop_duplicates("problem")
    for name in DIRECTIONS:
        rows = read_rows(shipped(folder_name(name)) / "training.parquet")
        auxiliary = not_of_shapes(rows, held_out)
        if name == direction:
            assert len(auxiliary) == len(rows)
        else:
            assert manifest["taught_by"][name] <= len(auxiliary)
    others = read_rows(folder / "other_builds.parquet")
    assert set(others["toolchain"].dropna()) == {"nvcc 13.0.88"}
    assert len(not_of_shapes(others, pd.concat([held_out, elsewhere(folder)]))) == len(others)
    assert set(others["problem"]) <= set(grown["problems"])


@pytest.mark.slow
def test_the_validation_set_is_unseen_and_fully_measured(direction: str, folder: Path) -> None:
    training = recorded(folder / "training.parquet")
    judging = oracle(folder, *sets_of(direction))
    ids = {problem.id for name in sets_of(direction) for problem in load_problem_set(name).problems}
    assert not set(training["problem"]) & ids
    assert set(judging["problem"]) == ids
    both = pd.concat([training, judging])
    assert set(both["status"]) <= {"ok", "noisy", "unsupported"}
    assert set(both.loc[both["status"] == "ok", "check"]) == {"full"}
    assert len(both.drop_duplicates(["problem", "kernel"])) > 3 * PUBLISHED_VOLUME[direction]


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_its_picks_reach_the_published_metrics(name: str) -> None:
    """For forward_validation_300, README's second command checks it: tests/docs/test_docs.py."""
    folder = shipped(folder_name(load_problem_set(name).problems[0].direction))
    found = summarise(selection_of(folder, oracle(folder, name)))
    figures = (found.mean_percent, found.median_percent, found.p10_percent)
    assert figures == pytest.approx(FIGURES[name], abs=0.05)


@pytest.mark.slow
def test_its_picks_reach_the_published_metrics_of_another_compiler(direction: str, folder: Path) -> None:
    found = summarise(selection_of(folder, elsewhere(folder)))
    assert (found.mean_percent, found.p10_percent) == pytest.approx(NVCC_FIGURES[direction], abs=0.05)
