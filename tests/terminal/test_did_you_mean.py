"""Suggestions for misspelt names."""

from __future__ import annotations

from pathlib import Path

import tile_oracle
from tile_oracle.terminal.did_you_mean import did_you_mean, most_like

KNOWN = ("pipeline", "scheduler", "tile_n")


def test_the_most_similar_name_is_suggested() -> None:
    assert most_like("pipelines", KNOWN) == "pipeline"
    assert did_you_mean("pipelines", KNOWN) == "did you mean pipeline?"


def test_without_a_similar_name_the_hint_is_the_other_one() -> None:
    assert most_like("waves", KNOWN) is None
    assert did_you_mean("waves", KNOWN) == ""
    assert did_you_mean("waves", KNOWN, "known keys: ...") == "known keys: ..."


def test_the_cutoff_says_how_similar_a_name_must_be() -> None:
    assert most_like("tile", KNOWN, 0.7) == "tile_n"
    assert most_like("tile", KNOWN, 0.9) is None


def test_a_word_of_any_length_is_compared_by_its_start() -> None:
    name = "n" * 100
    assert most_like(name + "x" * 1_000_000, (name,), cutoff=1.0) == name


def test_no_other_module_compares_names_itself() -> None:
    package = Path(tile_oracle.__file__).parent
    comparing = {file.name for file in package.rglob("*.py") if "difflib" in file.read_text("utf-8")}
    assert comparing == {"did_you_mean.py"}
