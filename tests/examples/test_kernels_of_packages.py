"""examples/kernels_of_packages: what its page says of each kernel of packages of the Python registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kernels_of_packages"
PACKAGES = ("liger-kernel==0.8.5", "packaging", "fla-core==0.6.0", "einops", "flash-attention-triton==0.1.1")

pytestmark = pytest.mark.slow


def test_declaring_takes_at_most_thirty_lines() -> None:
    for file in EXAMPLE.glob("*.py"):
        assert len(file.read_text().splitlines()) <= 30, file.name


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages."""
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*pip, *PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the packages cannot be installed: {done.stderr[-300:]}")
    return folder


def statuses(packages: Path, folder: Path, kernels: str, problems: str) -> pd.DataFrame:
    """The measurements of a problem set of the example."""
    here = shutil.copytree(EXAMPLE, folder / "example")
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"PYTHONPATH": str(packages)}
    given = ("--problem-set", f"{problems}.csv", "--kernels", kernels, "--target", "interpret")
    run = [sys.executable, "-m", "pytest", *given, "--run-name", "one"]
    subprocess.run(run, cwd=here, env=own, check=False)
    return pd.read_parquet(here / "reports" / "one" / "measurements")


def test_rms_norm_of_liger(packages: Path, tmp_path: Path) -> None:
    rows = statuses(packages, tmp_path, "liger.py", "rms_norm")
    rounded_twice = rows["kernel"].str.contains("casting_mode=0") & (rows["dtype"] != "fp32")
    assert set(rows.loc[rounded_twice, "status"]) == {"wrong"}
    assert set(rows.loc[~rounded_twice, "status"]) == {"untimed"}


def test_softmax_of_liger(packages: Path, tmp_path: Path) -> None:
    rows = statuses(packages, tmp_path, "liger.py", "softmax")
    several = rows["kernel"].str.contains("_multi_block_")
    assert set(rows.loc[several, "status"]) == {"build_error"}
    assert set(rows.loc[~several, "status"]) == {"untimed", "unsupported"}


def test_the_matrix_product_of_fla(packages: Path, tmp_path: Path) -> None:
    rows = statuses(packages, tmp_path, "fla_gemm.py", "gemm")
    assert list(rows["status"]) == ["untimed"] * 16


def test_flash_attention_in_triton(packages: Path, tmp_path: Path) -> None:
    rows = statuses(packages, tmp_path, "flash_attention.py", "attention")
    assert list(rows["status"]) == ["wrong"]
    assert "320 of 8,960 values wrong" in rows["detail"].iloc[0]
    assert "got nan" in rows["detail"].iloc[0]
