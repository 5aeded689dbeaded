"""A verdict states how many picks extrapolate; by problem and by kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.made_records import make_problems
from tests.pytest_project import Project
from tests.session.recorded import SET, Recorded, make_recorded, records_of, train_model
from tile_oracle.cli import main
from tile_oracle.training.extrapolation import Extrapolation

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
    folder = recorded.project.folder / "reports" / "picks"
    assert main(["report", str(folder)]) == 0
    assert json.loads((folder / "verdict.json").read_text())["extrapolating"] == document["extrapolating"]


def test_picks_that_extrapolate_are_counted_once() -> None:
    problems = {"a": ("G = 2, trained on 1 alone", "C = 9"), "b": ("G = 4",)}
    found = Extrapolation(problems, {"b": "never", "c": "never"})
    assert found.note == (
        "2 problems lie outside the model's training range (G: 2, C: 1); "
        "2 picks are kernels that the model never saw"
    )
    assert found.why == {"a": "G = 2, trained on 1 alone; C = 9", "b": "G = 4; never", "c": "never"}
    assert Extrapolation({}, {}).note == ""
