"""A deployed picker is compared with its model folder over a whole pool, and any difference fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.problem import Problem
from tile_oracle.selector.export import export_model
from tile_oracle.selector.parity import Answers, Engine, Parity, compare, exports_beside
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

KERNELS = make_kernels(("compv3", "mem"))
PROBLEMS = make_problems(4, seed=9)
PROBLEM = PROBLEMS[0].id


def trained(folder: Path, seed: int, trees: int = 5) -> Path:
    records = make_records(make_problems(12), KERNELS, noise=0.3, seed=seed)
    train(records, recipe_named("log_time").with_trees(trees), n_splits=2).save(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("models") / "m", 0)


@pytest.fixture(scope="module")
def export(model: Path) -> Path:
    return export_model(model, KERNELS, model.parent / "export").folder


def answers(scores: list[float], features: list[list[float]], order: list[int] | None = None) -> Engine:
    best = sorted(range(len(scores)), key=lambda one: -scores[one]) if order is None else order
    return lambda problem: Answers(np.array(scores), best, np.array(features))


def compared(one: Engine, other: Engine) -> Parity:
    problems: list[Problem] = list(PROBLEMS)
    return compare(Parity("it", 3), problems, KERNELS[:3], (one, other), ("tiles", "pipeline"))


GOOD = answers([1.0, 3.0, 2.0], [[1, 0], [2, 0], [3, 5]])


def test_equal_answers_pass_and_nothing_compared_does_not() -> None:
    found = compared(GOOD, GOOD)
    assert found.passed
    assert found.lines() == [
        "it: 3 kernels x 4 problems",
        "  features  0 of 12 rows differ",
        "  scores    0 of 12 differ",
        "  picks     0 of 4 differ",
        "  picks as the model folder",
    ]
    assert not Parity("it", 3).passed


def test_features_that_differ_or_are_missing_are_named() -> None:
    found = compared(GOOD, answers([1.0, 3.0, 2.0], [[1, 0], [2, 0], [3, 6]]))
    assert (found.passed, found.features, found.scores) == (False, 4, 0)
    assert "  features  4 of 12 rows differ: pipeline" in found.lines()
    assert found.firsts["feature"] == (
        f"{PROBLEM}, {KERNELS[2].name}: feature 1, pipeline, is 5 in the folder, 6 deployed"
    )
    found = compared(GOOD, answers([1.0, 3.0, 2.0], [[1], [2], [3]]))
    assert found.features == 12
    assert found.firsts["feature"] == (
        "the deployed picker passes 1 features, the model has 2; "
        f"{PROBLEM}, {KERNELS[0].name}: pipeline is missing"
    )


def test_scores_and_picks_are_counted_and_named() -> None:
    found = compared(GOOD, answers([1.0, 3.0, 4.0], [[1, 0], [2, 0], [3, 5]]))
    assert (found.scores, found.picks, found.ties, found.passed) == (4, 4, 0, False)
    assert found.firsts["score"] == f"{PROBLEM}, {KERNELS[2].name}: 2 in the folder, 4 deployed"
    assert found.firsts["pick"] == (f"{PROBLEM}: {KERNELS[1].name} by the folder, {KERNELS[2].name} deployed")
    assert not compared(GOOD, answers([1.0, float("nan"), 2.0], [[1, 0], [2, 0], [3, 5]])).passed


def test_a_tie_broken_otherwise_is_counted_and_an_unstable_sort_is_a_difference() -> None:
    tied = [2.0, 2.0, 2.0]
    rows = [[1.0, 0.0]] * 3
    by_name = answers(tied, rows, [2, 0, 1])
    found = compared(by_name, answers(tied, rows))
    assert (found.picks, found.ties, found.passed) == (0, 4, True)
    found = compared(answers(tied, rows), answers(tied, rows, [1, 0, 2]))
    assert (found.picks, found.orders, found.passed) == (0, 4, False)
    assert "the sort is not stable" in found.firsts["order"]


def test_a_model_passes_against_its_export(
    model: Path, export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "parity", str(model), PROBLEM, "--export", str(export)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{export / 'forward_bf16_2d.selector'} (forward bf16 2D): {len(KERNELS)} kernels x 1 problems",
        "  features  not shown by it",
        f"  scores    0 of {len(KERNELS)} differ",
        "  picks     0 of 1 differ",
        "  picks as the model folder",
    ]


def test_an_export_made_now_is_judged_on_problems_like_the_shipped_ones(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "parity", str(model), "--kernel-set", "tiny", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert 50 < found["problems"] <= 100


def test_an_export_of_other_trees_fails_and_says_so(
    model: Path, export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = trained(tmp_path / model.name, 1)
    shutil.copytree(export, tmp_path / "selector")
    words = [problem.id for problem in PROBLEMS]
    assert main(["model", "parity", str(other), *words, "--export", str(tmp_path / "selector")]) == 1
    said = capsys.readouterr().out
    assert f"scores    {4 * len(KERNELS)} of {4 * len(KERNELS)} differ" in said
    assert f"first score that differs: {PROBLEM}, {KERNELS[0].name}: " in said
    assert "was made from other trees than the folder's: log_time" in said
    assert said.endswith("DIFFERS from the model folder\n")
    assert exports_beside(other) == [tmp_path / "selector"]


def test_what_is_no_export_and_problems_without_a_selector_are_refused(
    model: Path, export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, message in (
        ([str(model), "--export", str(tmp_path)], "is neither a .selector file nor a folder of"),
        ([str(model), "--export", str(export / "README.md")], "it does not begin as one of this version"),
        ([str(model), "gemm-bf16-rcr-m1-n64-k64", "--export", str(export)], "has no selector for gemm-bf16"),
        (["gemm_bf16_sm_90", "--export", str(export)], "picks for forward bf16 2D, the model"),
        ([str(tmp_path / "none")], "no model folder at"),
    ):
        assert main(["model", "parity", *words]) == 2
        assert message in capsys.readouterr().err
