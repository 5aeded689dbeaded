"""Kernels with equal predictions: what a session measures again is what it judges, and what programs pick."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.evaluation.folder_model import Folders
from tile_oracle.judge.oracle import find_oracles
from tile_oracle.judge.selection import select
from tile_oracle.kernel import Kernel
from tile_oracle.model.predictor import Predictor
from tile_oracle.pickers.of_records import OutOfFold, file_of_picks
from tile_oracle.problem import Problem
from tile_oracle.problem_set import ProblemSet
from tile_oracle.record.final import final_measurements
from tile_oracle.selector.ranker import NativeRanker
from tile_oracle.session.models import ModelChoice, judged, picks_of
from tile_oracle.session.plan import Plan
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

PROBLEMS = tuple(make_problems(24, seed=3))
KERNELS = tuple(sorted(make_kernels(), key=lambda kernel: kernel.name, reverse=True))
"""Against the order of names, which decides between equal predictions."""
SET = ProblemSet("made", PROBLEMS, None, "", "", ("",) * len(PROBLEMS))
PLAN = Plan(SET, {PROBLEMS[0].kind: KERNELS})


def anything(kernel: Kernel, problem: Problem) -> None:
    return None


TARGET: Any = SimpleNamespace(arch="gfx950", refusal=anything)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of so few leaves that many kernels have the same time."""
    path = tmp_path_factory.mktemp("models") / "coarse"
    recipe = recipe_named("log_time").with_trees(2)
    train(make_records(list(PROBLEMS), list(KERNELS)), recipe, n_splits=2).save(path)
    return path


def measured_again(choice: ModelChoice, held: dict[str, str]) -> dict[str, str]:
    picks = picks_of([[choice]], PLAN, held, TARGET)
    return {problem.id: kernel.name for problem in PROBLEMS for kernel in picks(problem)}


def judged_picks(choice: ModelChoice, held: dict[str, str]) -> dict[str, str]:
    final = final_measurements(make_records(list(PROBLEMS), list(KERNELS)))
    table, _ = judged(choice, held).rank(PROBLEMS, PLAN.kernels, final)
    selection = select(PROBLEMS, final, find_oracles(final), table)
    return dict(zip(selection["problem"], selection["pick_kernel"], strict=True))


def test_a_folder_s_pick_is_the_same_everywhere(folder: Path) -> None:
    predictor, native = Predictor.load(folder), NativeRanker.load(folder, KERNELS)
    tied = 0
    picked = {}
    for problem in PROBLEMS:
        ranked = predictor.rank(problem, KERNELS)
        assert ranked == native.rank(problem)
        assert ranked[:3] == native.rank(problem, 3)
        tied += ranked[0][1] == ranked[1][1]
        picked[problem.id] = ranked[0][0].name
        best = [kernel.name for kernel, speed in ranked if speed == ranked[0][1]]
        assert best == sorted(best)
        assert native.select(problem) == predictor.select(problem, KERNELS) == ranked[0][0]
    assert tied > 5, "otherwise the test shows nothing"
    choice = ModelChoice(Folders("coarse", "gfx950", folders={PROBLEMS[0].kind: folder}))
    assert measured_again(choice, {}) == judged_picks(choice, {}) == picked


def test_so_is_that_of_a_file(tmp_path: Path) -> None:
    rows = [
        {**problem.as_row(), "kernel": kernel.name, "predicted_tflops": float(place < 4)}
        for problem in PROBLEMS
        for place, kernel in enumerate(KERNELS)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "picks.csv", index=False)
    choice = ModelChoice(file_of_picks(tmp_path / "picks.csv", PROBLEMS))
    expected = min(kernel.name for kernel in KERNELS[:4])
    assert set(judged_picks(choice, {}).values()) == {expected}
    assert measured_again(choice, {}) == judged_picks(choice, {})


def test_so_are_held_picks() -> None:
    held = {problem.id: KERNELS[place % len(KERNELS)].name for place, problem in enumerate(PROBLEMS)}
    choice = ModelChoice(OutOfFold("out-of-fold", "gfx950"))
    assert measured_again(choice, held) == judged_picks(choice, held) == held
    assert measured_again(choice, {}) == {}, "predictions come after the measurements"


def test_what_the_target_refuses_is_no_pick(folder: Path) -> None:
    choice = ModelChoice(Folders("coarse", "gfx950", folders={PROBLEMS[0].kind: folder}))
    first = measured_again(choice, {})
    refusing: Any = SimpleNamespace(
        arch="gfx950", refusal=lambda kernel, problem: "no" if kernel.name == first[problem.id] else None
    )
    second = picks_of([[choice]], PLAN, {}, refusing)
    ranked = Predictor.load(folder).rank(PROBLEMS[0], KERNELS)
    assert second(PROBLEMS[0]) == (ranked[1][0],)
