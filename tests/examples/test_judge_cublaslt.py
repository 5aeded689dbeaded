"""examples/judge_cublaslt: its session on an emulated GPU, with tests/shims/cublaslt.c, and its script."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernels.emulated_gpu import machine as emulated
from tests.pytest_project import SHORTLY, Project
from tests.shims.libraries import build_library
from tile_oracle.problem_set import load_problem_set

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "judge_cublaslt"
SMALL = "dtype,layout,M,N,K\nbf16,rcr,5,7,24\nfp16,rcr,3,4,16\n"


def test_its_products_are_a_problem_set() -> None:
    products = load_problem_set(str(EXAMPLE / "products.csv"))
    assert len(products.problems) == 6
    assert {problem.op for problem in products.problems} == {"gemm"}


@pytest.mark.slow
def test_the_first_choice_is_judged_and_its_losses_are_named(
    project: Project, emulated_machine: Callable[[str], emulated.EmulatedMachine], tmp_path: Path
) -> None:
    gpu, library = emulated_machine("sm_90"), build_library("cublaslt", tmp_path / "library")
    project.write("products.csv", SMALL)
    shutil.copy(EXAMPLE / "losses.py", project.folder)
    words = (
        "--problem-set=products.csv",
        f"--kernels=cublaslt={library}",
        "--target=sm_90",
        "--model=vendor",
    )
    emulation = ("-p", emulated.PLUGIN, f"--toolchain={gpu.compiler}", "--library-algorithms=3", *SHORTLY)
    environment = {**gpu.environment(), "RECORD_TO": str(tmp_path / "calls")}
    accepted = project.pytest(*words, *emulation, "--update-baseline", environment=environment)
    assert accepted.status == 0, accepted.output[-4000:]
    gated = project.pytest(*words, *emulation, environment=environment)
    assert gated.status == 0, gated.output[-4000:]
    assert "the own choice of cublaslt" in gated.output
    command = [sys.executable, "losses.py", str(project.runs[-1])]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gemm-bf16-rcr-m5-n7-k24" in done.stdout
    assert "cublaslt.a7" in done.stdout, "the first choice takes twice the time of the second"
