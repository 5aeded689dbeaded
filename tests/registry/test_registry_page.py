"""The programs of docs/registry.md run unchanged (its commands: tests/docs/test_docs.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.processes import run_python

PROGRAMS = blocks(ROOT / "docs" / "registry.md", "python")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "grouped_conv_forward_bf16_2d_"),
        (1, " TFLOPS  grouped_conv_forward_bf16_2d_"),
    ],
)
def test_a_program_of_the_page_runs(number: int, shown: str, tmp_path: Path) -> None:
    assert len(PROGRAMS) == 2
    done = run_python("-c", PROGRAMS[number], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert "Traceback" not in done.stderr
