"""The programs of docs/registry.md run unchanged (its commands: tests/docs/test_docs.py)."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.processes import run_python
from tile_oracle.cli import main

PROGRAMS = blocks(ROOT / "docs" / "registry.md", "python")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, ["tuned ", " (1, 14, 14, 1, 32) "]),
        (1, [" TFLOPS  grouped_conv_forward_bf16_2d_"]),
    ],
)
def test_a_program_of_the_page_runs(
    number: int, shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(PROGRAMS) == 2
    if number == 0:
        lines = "\n".join(blocks(ROOT / "docs" / "registry.md", "sh")).splitlines()
        tuned = next(line for line in lines if line.startswith("tile-oracle tune"))
        monkeypatch.chdir(tmp_path)
        assert main(shlex.split(tuned)[1:]) == 0
    done = run_python("-c", PROGRAMS[number], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in shown:
        assert text in done.stdout
    assert "Traceback" not in done.stderr
