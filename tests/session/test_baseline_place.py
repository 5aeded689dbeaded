"""The file that a session names as its baseline is the one that it read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tile_oracle.pickers.of_records import no_picker
from tile_oracle.problem_set import load_problem_set
from tile_oracle.session import models
from tile_oracle.session.kernels_option import GivenKernels
from tile_oracle.session.models import ModelChoice, baseline_file, baseline_place
from tile_oracle.session.options import SessionOptions

SET = load_problem_set("forward_smoke")
CHOICE = ModelChoice(no_picker("some_model", ""))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Path, Path]:
    """The session's options, the user's own folder of baselines and the shipped one."""
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    monkeypatch.setattr(models, "model_places", lambda mine, arch, replays: (mine, shipped))
    options = SimpleNamespace(baseline_dir=own, kernel_set="tiny", kernel_filter=None, cold_cache=False)
    options.set_name = options.kernel_set
    options.kernels = GivenKernels()
    return options, own, shipped


def place(options: Any) -> Path:
    target = SimpleNamespace(arch="sm_90", name="replay")
    return baseline_place(CHOICE, SET, "H200", options, target)  # type: ignore[arg-type]


@pytest.fixture
def options(read_command_line: Callable[..., SessionOptions]) -> SessionOptions:
    return read_command_line("--problem-set=forward_smoke")


@pytest.mark.parametrize(
    ("given", "kept_under"),
    [
        ("tiny", "tiny"),
        ("few.json", "few"),
        ("lists/few.json", "few"),
        ("default.json", "default.json"),
        ("profiler.conf", "profiler.conf"),
    ],
)
def test_a_list_s_baseline_has_the_stem_of_its_file(
    options: SessionOptions, given: str, kept_under: str
) -> None:
    asked = replace(options, kernel_set=given)
    assert baseline_file(CHOICE, SET, "H200", asked).name == f"{kept_under}.json"
    assert asked.pool_name == kept_under


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
