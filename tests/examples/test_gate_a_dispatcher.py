"""examples/gate_a_dispatcher: the commands of its page, and what the page says of their results."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.processes import run_python

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gate_a_dispatcher"

pytestmark = pytest.mark.slow


def test_the_page_from_end_to_end(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "example"))
    commands = re.findall(r"^    ((?:python|pytest) .*)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ended = []
    for command in commands:
        words = command.split()
        if words[0] == "pytest":
            words += [f"--report-json=session{len(ended)}.json"]
        module = ["-m", "pytest"] if words[0] == "pytest" else []
        done = run_python(*module, *words[1:], cwd=folder, env=own)
        ended.append(done.returncode)
    assert ended == [0, 0, 0, 1], done.stdout[-3000:]
    old, new = (json.loads((folder / f"session{n}.json").read_text())["sets"][0] for n in (1, 3))
    means = [one["efficiency"]["mean_percent"] for one in (old, new)]
    medians = [one["efficiency"]["median_percent"] for one in (old, new)]
    page = (EXAMPLE / "README.md").read_text()
    assert f"from {means[0]:.1f} to {means[1]:.1f} %" in page
    assert f"from {medians[0]:.1f} to {medians[1]:.1f} %" in page
    said = " ".join(done.stdout.split())
    assert "verdict FAILED: criteria not met: largest loss" in said
    assert "largest loss: 5 problems lost more than 10 points" in said
    assert "five problems lose more than 10 points" in page
