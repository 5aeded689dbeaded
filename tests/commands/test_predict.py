"""`tile-oracle pick --predictions`: every quantity that a model predicts, for problems named in any way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.model.predictor import Predictor
from tile_oracle.problem_set import load_problem_set
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

PROBLEM = "forward-bf16-n1-c64-k64-i56x56-f3x3-p1"
DIMENSIONS = "N=1,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "m"
    targets = ("tflops", "latency", "bandwidth")
    records = make_records(make_problems(12), make_kernels())
    train(records, recipe_named("published").with_trees(20), targets=targets, n_splits=2).save(folder)
    return folder


def predicted(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["predict", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_target_is_printed_with_its_unit(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = predicted(capsys, PROBLEM, "--model", str(model), "--json", "--top", "3")
    found = json.loads(line)
    assert found["units"] == {"tflops": "TFLOPS", "latency": "ms", "bandwidth": "GB/s"}
    predictor = Predictor.load(model)
    problem = load_problem_set("forward_smoke").problems[0].from_id(PROBLEM)
    for pick in found["picks"]:
        kernel = next(one for one in make_kernels() if one.name == pick["kernel"])
        for target, value in pick["members"].items():
            assert value == pytest.approx(predictor.predict(problem, [kernel], target)[0])
    text = predicted(capsys, PROBLEM, "--model", str(model), "--top", "1")
    assert "latency" in text[1]
    assert "GB/s" in text[1]


def test_problems_are_named_as_for_pick(
    model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    by_id = predicted(capsys, PROBLEM, "--model", str(model))
    assert predicted(capsys, DIMENSIONS, "--model", str(model)) == by_id
    (tmp_path / "set.csv").write_text(
        "N,C,K,Hi,Wi,Y,X,pad_h,pad_w\n1,64,64,56,56,3,3,1,1\n1,64,64,28,28,1,1,0,0\n"
    )
    lines = predicted(capsys, str(tmp_path / "set.csv"), "--model", str(model), "--json")
    assert [json.loads(line)["problem"] for line in lines] == [
        PROBLEM, "forward-bf16-n1-c64-k64-i28x28-f1x1",
    ]  # fmt: skip


def test_a_pool_may_be_ranked_in_place_of_the_trained_kernels(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--model", str(model), "--json", "--top", "9999")
    known = json.loads(predicted(capsys, PROBLEM, *words)[0])
    pool = json.loads(predicted(capsys, PROBLEM, *words, "--kernel-set", "default")[0])
    assert len(pool["picks"]) > len(known["picks"])
