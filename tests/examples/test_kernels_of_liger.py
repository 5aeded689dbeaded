"""examples/kernels_of_liger: what its page says of each kernel, where liger-kernel is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kernels_of_liger"

pytestmark = pytest.mark.slow


def test_declaring_takes_at_most_thirty_lines() -> None:
    assert len((EXAMPLE / "declared.py").read_text().splitlines()) <= 30


@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="liger-kernel is not installed")
def test_the_kernels_are_right_or_wrong_as_the_page_says(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "example")
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    for name in ("rms_norm", "softmax"):
        given = (
            "--problem-set",
            f"{name}.csv",
            "--kernels",
            "declared.py",
            "--target",
            "interpret",
            "--run-name",
            name,
        )
        subprocess.run([sys.executable, "-m", "pytest", *given], cwd=folder, env=own, check=False)
    rows = pd.read_parquet(folder / "reports" / "rms_norm" / "measurements")
    rounded_twice = rows["kernel"].str.contains("casting_mode=0") & (rows["dtype"] != "fp32")
    assert set(rows.loc[rounded_twice, "status"]) == {"wrong"}
    assert set(rows.loc[~rounded_twice, "status"]) == {"untimed"}
    rows = pd.read_parquet(folder / "reports" / "softmax" / "measurements")
    several = rows["kernel"].str.contains("_multi_block_")
    assert set(rows.loc[several, "status"]) == {"build_error"}
    assert set(rows.loc[~several, "status"]) == {"untimed", "unsupported"}
