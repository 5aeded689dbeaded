"""A small network that learns a model's scores: what it picks, what it reads, and that it comes second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.test_grow_network import made_records
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.model.fitting_model import models_for
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import NETWORK_FILE
from tile_oracle.model.trees import TreeSettings
from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.problem import problem_from_id
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.training import imitation
from tile_oracle.training.recipe import Recipe, TreePart
from tile_oracle.training.train import train

TREES = Recipe("trees", "", (TreePart("log_time", "gemm_pool_2", TreeSettings(trees=60)),))


def imitated(folder: Path, model: Path, disturbed: bool = False) -> Path:
    records = made_records(12)
    if disturbed:
        records = records.assign(latency_ms=records["latency_ms"].to_numpy()[::-1])
    train(records, imitated=model).save(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("models") / "measured"
    train(made_records(12), TREES, n_splits=2).save(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imitation, "_PAIRS", 3000)
        patch.setattr(imitation, "SETTINGS", replace(imitation.SETTINGS, hidden=(40,), epochs=40))
        yield folder


@pytest.fixture(scope="module")
def folder(model: Path) -> Path:
    return imitated(model.parent / "fast", model)


def test_it_picks_as_the_model_does_on_problems_that_neither_saw(model: Path, folder: Path) -> None:
    teacher, own = Predictor.load(model), Predictor.load(folder)
    problems = [problem_from_id(one) for one in sorted(set(made_records(20, seed=7)["problem"]))]
    kernels = [parse_kernel_name(name) for name in sorted(set(made_records(1)["kernel"]))]
    native = NativeRanker.load(folder, kernels)
    kept = []
    for problem in problems:
        said = dict(zip(kernels, teacher.predict(problem, kernels), strict=True))
        kept.append(said[own.select(problem, kernels)] / max(said.values()))
        assert native.select(problem) == own.select(problem, kernels)
    assert np.mean(kept) > 0.93
    assert own.ranker.orders_only
    (member,) = own.ranker.members
    assert member.schema.name == "gemm_lean_1"  # type: ignore[attr-defined]


def test_it_reads_no_times_of_the_records(tmp_path: Path, model: Path, folder: Path) -> None:
    other = imitated(tmp_path / "other", model, disturbed=True)
    assert (folder / NETWORK_FILE).read_bytes() == (other / NETWORK_FILE).read_bytes()


def test_a_session_takes_the_model_that_was_measured(model: Path, folder: Path) -> None:
    kernels = [parse_kernel_name(name) for name in set(made_records(1)["kernel"])]
    found = models_for(kernels[0].kind, "sm_90", [model.parent], kernels=kernels)
    assert found.folder == model
    assert [(one.folder.name, one.why_not) for one in found.considered[1:]] == [
        (folder.name, "fits, but imitates another")
    ]


def test_sizes_near_a_problems_are_a_problem_again() -> None:
    """Heads that the heads of keys do not divide are no attention problem: other ones are drawn."""
    problem = AttentionProblem("bf16", 2, 12, 3, 1, 640, 64, 0)
    random = np.random.default_rng(0)
    near = [imitation._near(problem, ("heads", "seq_kv"), random) for _ in range(60)]
    assert {(one.batch, one.kv_heads, one.seq_q) for one in near} == {(2, 3, 1)}
    assert len({one.heads for one in near}) > 2
    round_sizes = [one.seq_kv % 128 == 0 for one in near]
    assert 0.5 < np.mean(round_sizes) < 0.95
    padless = problem_from_id("forward-bf16-n1-c64-k64-i56x56-f3x3")
    assert {imitation._near(padless, ("Hi", "pad_h"), random).pad_h for _ in range(9)} == {0}
