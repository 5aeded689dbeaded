"""tile-oracle new: what it writes runs at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.compiling.triton.child_process import triton_folder


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | more
    environment |= {"TILE_ORACLE_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_nothing_is_overwritten_and_names_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("kept")
    assert main(["new", "kernels", "mine.py"]) == 2
    assert "mine.csv exists already: nothing was written" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["mine.csv"]
    for what, name, said in (
        ("kernels", "mine", "is no name of a Python file"),
        ("operation", "Layer-Norm", "is no name of an operation"),
        ("operation", "samples", "is no name of an operation"),
        ("operation", "softmax", "there is an operation softmax already"),
    ):
        assert main(["new", what, name]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
def test_the_kernels_are_right(tmp_path: Path) -> None:
    assert run(tmp_path, "tile_oracle.cli", "new", "kernels", "mine.py").returncode == 0
    given = ("--problem-set", "mine.csv", "--kernels", "mine.py", "--target", "interpret")
    done = run(tmp_path, "pytest", *given, "--allow", "not-timed")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_operation_passes_its_test(tmp_path: Path) -> None:
    """On PYTHONPATH with the entry point of its pyproject.toml, as if it were installed."""
    assert run(tmp_path, "tile_oracle.cli", "new", "operation", "row_share").returncode == 0
    declared = (tmp_path / "row_share" / "pyproject.toml").read_text()
    point = next(line for line in declared.splitlines() if line.startswith("row_share = ")).replace('"', "")
    facts = tmp_path / "row_share" / "row_share-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: row_share\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[tile_oracle.operations]\n{point}\n")
    there = {"PYTHONPATH": str(tmp_path / "row_share")}
    done = run(tmp_path, "pytest", "row_share", **there)
    assert done.returncode == 0, done.stdout
    source = tmp_path / "row_share" / "row_share_operation" / "descriptor.py"
    source.write_text(source.read_text().replace("/ sum[0])", "/ sum[0] * 2)"))
    done = run(tmp_path, "pytest", "row_share", **there)
    assert done.returncode == 1
    assert "values wrong" in done.stdout
