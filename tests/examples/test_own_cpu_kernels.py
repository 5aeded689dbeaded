"""examples/own_cpu_kernels: installed as its page says, its kernels are built, right, and judged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_cpu_kernels"

pytestmark = pytest.mark.slow


def test_the_page_from_end_to_end(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "example"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), "."], cwd=folder, check=True)
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--problem-set", "layers.csv", "--kernels", "blocked"),
            *("--target", "cpu", "--run-name=run", f"--build-dir={tmp_path / 'cache'}", "--samples=5"),
            *("--settle-budget=0", "--allow=no-baseline,cannot-tell"),
        ],
        cwd=folder,
        env=own | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    rows = pd.read_parquet(folder / "reports" / "run" / "measurements")
    assert set(rows["implementation"]) == {"blocked_conv"}
    assert set(rows["status"]) <= {"ok", "noisy", "unsupported"}
    refused = rows[rows["status"] == "unsupported"]
    assert set(refused["detail"].str.replace(r"[0-9]+", "N", regex=True)) == {
        "N output channels are not a multiple of N"
    }
    assert rows[rows["status"] == "ok"].groupby("problem")["kernel"].nunique().min() >= 3
    assert "verdict no baseline" in done.stdout
