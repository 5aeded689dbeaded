"""zizmor finds nothing in the workflows, nor in those that the documentation shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOWN = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    if "\njobs:" in block
]


def _zizmor(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("zizmor")
    command = [program, "--offline", "--quiet", "--no-progress", ".github"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def _with_workflow(folder: Path, text: str) -> Path:
    place = folder / ".github" / "workflows"
    place.mkdir(parents=True)
    (place / "shown.yml").write_text(text.replace("COMMIT", "0123456789" * 4).replace("OWNER", "someone"))
    return folder


def test_the_workflows_of_the_project_have_no_findings() -> None:
    ended = _zizmor(ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("block", SHOWN)
def test_shown_workflows_have_no_findings(block: str, tmp_path: Path) -> None:
    ended = _zizmor(_with_workflow(tmp_path, block))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_branch_in_place_of_a_commit_is_found(tmp_path: Path) -> None:
    (block,) = SHOWN
    ended = _zizmor(_with_workflow(tmp_path, str(block.values[0]).replace("@COMMIT", "@main")))
    assert ended.returncode != 0
    assert "unpinned-uses" in ended.stdout
