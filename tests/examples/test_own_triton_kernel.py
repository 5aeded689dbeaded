"""examples/own_triton_kernel: what its page tells a reader to do, with a CUDA driver that records every call.

The recording driver runs nothing, so every result counts as right: the session tests the host's part alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.shims.recording import build_recorder, read_record
from tile_oracle.compiling.triton.child_process import triton_folder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own_triton_kernel"
PAGE = ROOT / "docs" / "bring_your_own_kernels.md"

# The recording driver says 10 us for every run, which no GPU could take for large products.
SMALL = (
    "dtype,layout,M,N,K\nbf16,rcr,1,128,256\nbf16,rcr,64,128,256\nbf16,rcr,130,256,512\nbf16,rcr,64,64,100\n"
)
A_GPU = "import tile_oracle.targets.gpu_presence as presence\npresence._nvidia_gpus = lambda: 1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's copy of the example."""
    return Path(shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("reader") / "example"))


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = {"pytest": "pytest", "tile-oracle": "tile_oracle.cli"}[words[0]]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    own |= {"TILE_ORACLE_CACHE": str(folder.parent / "cache"), **environment}
    command = [sys.executable, "-m", program, *words[1:]]
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_example() -> None:
    example = (EXAMPLE / "my_kernels.py").read_text()
    for part in shown("python")[1].split("...\n"):
        assert part.strip() in example


def test_the_page_s_own_file_is_right(tmp_path: Path) -> None:
    """In an empty folder: the page shows all of it, and the command."""
    (tmp_path / "mine.py").write_text(shown("python")[0])
    (tmp_path / "mine.csv").write_text(shown("csv")[0])
    (command,) = re.findall(r"^    (pytest .* mine\.py .*)$", PAGE.read_text(), re.MULTILINE)
    done = run(tmp_path, *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed, 1 skipped" in done.stdout


@pytest.mark.parametrize(("arch", "kernels"), [("sm_90", 6), ("gfx950", 8)])
def test_it_compiles_for_gpus_that_are_not_there(folder: Path, arch: str, kernels: int) -> None:
    counted = run(folder, "tile-oracle", "kernels", "--kernels", "my_kernels.py", "--arch", arch)
    assert counted.returncode == 0, counted.stderr
    assert f"{kernels} kernels for {arch}" in counted.stdout
    words = ("kernels", "--kernels", "my_kernels.py", "--arch", arch, "--dtype", "bf16", "--facts")
    facts = run(folder, "tile-oracle", *words)
    assert facts.returncode == 0, facts.stdout + facts.stderr
    assert f"{kernels // 2} kernels for {arch}, 0 of which spill" in facts.stdout
    assert facts.stdout.splitlines()[0].split()[:3] == [
        "VGPRs",
        *(("LDS", "bytes") if arch == "sm_90" else ("of", "these")),
    ]


def test_a_session_runs_from_a_folder(folder: Path) -> None:
    words = ("build", "-o", "built", "--arch", "sm_90", "--kernels", "my_kernels.py", "--dtype", "bf16")
    built = run(folder, "tile-oracle", *words)
    assert built.returncode == 0, built.stdout + built.stderr
    library = build_recorder(folder, cuda=True)
    library.rename(folder / "libcuda.so.1")
    (folder / "conftest.py").write_text(A_GPU)
    (folder / "my_kernels.py").unlink()
    (folder / "small.csv").write_text(SMALL)
    options = ("--target", "sm_90", "--allow", "no-baseline", "-p", "no:cacheprovider")
    done = run(
        folder,
        *("pytest", "--problem-set", "small.csv", "--kernels", "built", *options),
        LD_LIBRARY_PATH=str(folder),
        RECORD_TO=str(folder / "record"),
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "4 problems, 12 pairs measured" in done.stdout
    assert "9 ok, 3 unsupported" in done.stdout
    assert "LightGBM trees" in done.stdout
    (run_folder,) = (folder / "reports").iterdir()
    rows = pd.concat(map(pd.read_parquet, (run_folder / "measurements").glob("*.parquet")))
    assert set(rows["implementation"]) == {"triton"}
    assert set(rows.loc[rows["status"] == "unsupported", "detail"]) == {
        "constraint: K is not a multiple of BLOCK_K"
    }
    made_by = set(rows.loc[rows["status"] == "ok", "toolchain"])
    assert [one.startswith("triton 3.") for one in made_by] == [True]
    grids = {call[2] for call in read_record(folder / "record") if call[0] == "hipModuleLaunchKernel"}
    assert {"2,2,1", "3,4,1", "9,4,1"} <= grids
