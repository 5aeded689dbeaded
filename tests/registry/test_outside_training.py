"""Problems outside a model's training range: `pick` says why."""

from __future__ import annotations

import json

import pytest

from tile_oracle.cli import main
from tile_oracle.problem import problem_from_id

INSIDE = problem_from_id("forward-bf16-n1-c64-k64-i56x56-f3x3-p1")
OUTSIDE = problem_from_id("forward-bf16-n512-c8192-k4096-i56x56-f3x3-p1")
WHERE = "N = 512, trained on 1 to 16; C = 8192, trained on 3 to 3072"


def test_pick_notes_problems_and_kernels_outside_of_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--arch", "gfx950", "--engine", "python")
    assert main(["pick", OUTSIDE.id, *own]) == 0
    assert f"  outside of its training: {WHERE}\n" in capsys.readouterr().out
    assert main(["pick", INSIDE.id, *own, "--kernel-set", "tiny"]) == 0
    said = capsys.readouterr().out
    assert "outside of its training" not in said
    assert "  extrapolates: never measured, predicted" in said
    assert main(["pick", INSIDE.id, OUTSIDE.id, *own, "--json"]) == 0
    inside, outside = map(json.loads, capsys.readouterr().out.splitlines())
    assert inside["outside_training"] == []
    assert "; ".join(outside["outside_training"]) == WHERE
