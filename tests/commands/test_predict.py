"""`tile-oracle pick --predictions`: every quantity that a model predicts, for problems named in any way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tests.training.test_train import with_targets
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
    recipe = with_targets(recipe_named("published").with_trees(20), "latency", "bandwidth")
    train(make_records(make_problems(12), make_kernels()), recipe, n_splits=2).save(folder)
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


def test_problems_and_pools_are_named_as_for_pick(
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
    words = ("--model", str(model), "--json", "--top", "9999")
    known = json.loads(predicted(capsys, PROBLEM, *words)[0])
    pool = json.loads(predicted(capsys, PROBLEM, *words, "--kernel-set", "default")[0])
    assert len(pool["picks"]) > len(known["picks"])


@pytest.fixture
def two_models(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models/a_older, and models/z_newer, which was trained on two of its ten kernels."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, tmp_path / "models" / "a_older")
    few = make_records(make_problems(12), make_kernels()[:2])
    train(few, recipe_named("published").with_trees(20), n_splits=2).save(tmp_path / "models" / "z_newer")
    return tmp_path


def test_the_same_model_is_taken_everywhere_and_what_else_fits_is_said(
    two_models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, taken, other in (
        ([], "z_newer", "a_older, which fits, but is older"),
        (
            ["--kernels", "all.txt"],
            "a_older",
            "z_newer, which fits, but was trained on 2 of the 10 candidates",
        ),
    ):
        (two_models / "all.txt").write_text("".join(f"{one.name}\n" for one in make_kernels()))
        found = []
        for words in (["--predictions"], []):
            assert main(["pick", PROBLEM, "--arch", "gfx950", "--json", *words, *more]) == 0
            out, err = capsys.readouterr()
            assert f"model: {taken} (your own, " in err
            assert f"models/{other}" in err
            assert "grouped_conv_forward_bf16_gfx950, which fits, but is shipped" in err
            document = json.loads(out)
            found.append((document["model"], document["picks"][0]["kernel"]))
        assert found[0] == found[1]
        assert found[0][0] == taken
    (two_models / "all.txt").write_text("".join(f"{one.name}\n" for one in make_kernels()))
    assert main(["pick", PROBLEM, "--arch", "gfx950", "--kernels", "all.txt", "--model", "z_newer"]) == 0
    assert "models/z_newer; trained on 2 of the 10 candidates)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["model", "export", "-o", "out"], ["pick", "--search", PROBLEM, "--model"]]
)
def test_every_command_finds_a_model_of_ones_own_by_its_name(two_models: Path, command: list[str]) -> None:
    assert main([*command, "a_older"]) == 0
