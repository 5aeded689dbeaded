"""A verdict states how many picks extrapolate; by problem and by kernel."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tests.pytest_project import Project
from tests.session.recorded import SET, Recorded, make_recorded, records_of, train_model
from tile_oracle.cli import main
from tile_oracle.files.data_files import data_folder
from tile_oracle.model.aliases import Aliases
from tile_oracle.model.store import MANIFEST_FILE, OUT_OF_FOLD_FILE
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.training.extrapolation import Extrapolation
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train
from tile_oracle.training.training_range import TrainingRange

REPLAY = ("--problem-set", SET, "--target", "replay", "--model", "narrow")


@pytest.fixture(scope="module")
def recorded(make_project: Callable[[], Project]) -> Recorded:
    """With a further model, `narrow`, that was trained only on problems with at most 256 channels."""
    made = make_recorded(make_project())
    narrow = [problem for problem in make_problems(52, seed=3)[12:] if problem.C <= 256]
    train_model(records_of(narrow, made.kernels, seed=1), made.model.parent / "narrow")
    return made


def ended(recorded: Recorded, name: str, *options: str) -> tuple[str, dict[str, Any], pd.DataFrame]:
    finished = recorded.project.pytest(*REPLAY, "--oracle", recorded.oracle, "--run-name", name, *options)
    run: Path = recorded.project.folder / "reports" / name
    document = json.loads((run / "verdict.json").read_text())
    return finished.output, document, pd.read_parquet(run / "selection.parquet").set_index("problem")


@pytest.mark.slow
def test_extrapolating_picks_are_counted(recorded: Recorded) -> None:
    wide = {problem.id for problem in recorded.problems if problem.C > 256}
    output, document, selection = ended(recorded, "picks")
    extrapolated = document["extrapolating"]["picks"]
    assert wide <= extrapolated.keys()
    assert len(extrapolated) < len(recorded.problems)
    assert all("C = " in extrapolated[problem] for problem in wide)
    assert f"{len(extrapolated)} problems lie outside the model's training range" in output
    assert (selection["coverage"] == "covered").all()


def test_picks_that_extrapolate_are_counted_once() -> None:
    problems = {"a": ("G = 2, trained on 1 alone", "C = 9"), "b": ("G = 4",)}
    found = Extrapolation(problems, {"b": "never", "c": "never"})
    assert found.note == (
        "2 problems lie outside the model's training range (G: 2, C: 1); "
        "2 picks are kernels that the model never saw"
    )
    assert found.why == {"a": "G = 2, trained on 1 alone; C = 9", "b": "G = 4; never", "c": "never"}
    assert Extrapolation({}, {}).note == ""


# The training range of a model: problems by their dimensions, kernels by their names.

GFX950 = data_folder("models") / "grouped_conv_forward_bf16_gfx950"
INSIDE = GroupedConvProblem("forward", "bf16", 2, 2, 128, 128, 1, 28, 28, 3, 3, pad_h=1, pad_w=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems with multiples of 64 channels up to 704 and one group, and only compv3."""
    folder = tmp_path_factory.mktemp("model") / "made"
    records = make_records(make_problems(30), make_kernels(("compv3",)))
    train(records, recipe=recipe_named("log_time").with_trees(20), n_splits=2).save(folder)
    return folder


def known(folder: Path) -> TrainingRange:
    found = TrainingRange.of(folder)
    assert found is not None
    return found


def test_a_problem_like_the_training_problems_is_inside(model: Path) -> None:
    assert known(model).problem_outside(INSIDE) == ()
    assert all(known(model).problem_outside(problem) == () for problem in make_problems(30))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"G": 2}, "G = 2, trained on 1 alone"),
        ({"C": 100}, "C = 100, trained on multiples of 8"),
        ({"K": 4096}, "K = 4096, trained on 64 to"),
        ({"stride_h": 2}, "stride_h = 2, trained on 1 alone"),
        ({"dtype": "fp16"}, "forward fp16 2D, trained on forward bf16 2D"),
        ({"ndim": 3, "Di": 4, "Z": 3}, "forward bf16 3D, trained on forward bf16 2D"),
    ],
)
def test_a_problem_outside_has_a_reason(model: Path, change: dict[str, object], reason: str) -> None:
    (said,) = known(model).problem_outside(replace(INSIDE, **change))
    assert said.startswith(reason)


def test_unmeasured_kernels_and_unmeasured_twins_differ(model: Path) -> None:
    seen = "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"
    assert known(model).kernel_outside(seen) == ""
    with_aliases = replace(known(model), aliases=Aliases({seen: seen}))
    twin = with_aliases.kernel_outside(seen.replace("compv3", "compv5"))
    assert twin == f"never measured, predicted as {seen}"
    stranger = known(model).kernel_outside(seen + "_f1x1p0")
    assert stranger == "never measured, predicted by its features"


def test_a_model_with_unknown_training_problems_has_no_range(model: Path, tmp_path: Path) -> None:
    silent = shutil.copytree(model, tmp_path / "silent")
    for name in (MANIFEST_FILE, OUT_OF_FOLD_FILE):
        (silent / name).unlink(missing_ok=True)
    assert TrainingRange.of(silent) is None


def test_groups_are_outside_the_shipped_gfx950_model(capsys: pytest.CaptureFixture[str]) -> None:
    ids = "forward-bf16-n2-g32-c64-k64-i8x8-f3x3-p1", "forward-bf16-n8-c64-k64-i56x56-f3x3-p1"
    assert known(GFX950).problem_outside(replace(INSIDE, G=32)) == ("G = 32, trained on 1 alone",)
    assert main(["predict", *ids, "--model", str(GFX950), "--top", "1"]) == 0
    assert capsys.readouterr().out.count("outside of its training: G = 32, trained on 1 alone") == 1
    assert main(["predict", *ids, "--model", str(GFX950), "--json"]) == 0
    said = [json.loads(line)["outside_training"] for line in capsys.readouterr().out.splitlines()]
    assert said == [["G = 32, trained on 1 alone"], []]
