"""The file that a session names as its baseline is the one that it read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tile_oracle.problem_set import load_problem_set
from tile_oracle.session import models
from tile_oracle.session.models import ModelChoice, baseline_file, baseline_place

SET = load_problem_set("forward_smoke")
CHOICE = ModelChoice("some_model")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Path, Path]:
    """The session's options, the user's own folder of baselines and the shipped one."""
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    monkeypatch.setattr(models, "model_places", lambda mine, arch, replays: (mine, shipped))
    options = SimpleNamespace(
        baseline_dir=own, kernel_set="tiny", kernel_filter=None, cold_cache=False, abstain=False
    )
    options.kernels = options.kernel_source = ""
    return options, own, shipped


def place(options: Any) -> Path:
    target = SimpleNamespace(arch="sm_90", name="replay")
    return baseline_place(CHOICE, SET, "H200", options, target)  # type: ignore[arg-type]


def test_of_two_places_the_one_with_the_file_is_named(places: tuple[Any, Path, Path]) -> None:
    options, own, shipped = places
    mine = baseline_file(CHOICE, SET, "H200", options)
    theirs = shipped / mine.relative_to(own)
    assert place(options) == mine, "without any, the one that --update-baseline writes"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    assert place(options) == theirs
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    assert place(options) == mine
