"""How much of the time the GPU works, how fast configurations are measured, and whether two runs agree."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.figures import agreement, oracles, throughput
from benchmarks.gpu.setting import (
    HERE,
    Setting,
    environment,
    note,
    run_session,
    some_problems,
)
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain
from tile_oracle.errors import BuildError

SAMPLES = "--samples=20"
LEAST_BUSY_SHARE = 0.60
LEAST_TIMES_KERNEL_TUNER = 5.0
LEAST_AGREEING_SHARE = 0.95
KERNELS_FROM_SOURCE, MOST_WITH_BINARIES = 30, 100
TUNED_PROBLEMS = 3


def problems_of(setting: Setting, count: int):  # type: ignore[no-untyped-def]
    """TILE_ORACLE_FIGURES_PROBLEMS: another number than `count`; 300 for all of the set."""
    if setting.dry:
        return some_problems(setting, "forward_smoke", 2)
    return some_problems(
        setting, "forward_unseen_300", int(os.environ.get("TILE_ORACLE_FIGURES_PROBLEMS", count))
    )


def test_the_gpu_is_busy_and_two_runs_agree(setting: Setting) -> None:
    problems = problems_of(setting, 30)
    runs = [run_session(setting, f"repeat-{number}", problems, SAMPLES) for number in (1, 2)]
    found = throughput(runs[0].records, runs[0].wall_s)
    note(setting, "throughput", found)
    same = agreement(*(oracles(run.records) for run in runs))
    note(setting, "repeatability", same)
    assert found.pairs > 0
    assert same.problems > 0
    if not setting.dry:
        assert same.share >= LEAST_AGREEING_SHARE
        assert found.busy_share >= LEAST_BUSY_SHARE


def need_kernel_tuner(setting: Setting) -> None:
    if setting.target == "gfx950":
        pytest.skip("the backend for Kernel Tuner is over CUDA's driver")
    if importlib.util.find_spec("kernel_tuner") is None:
        pytest.skip("Kernel Tuner is not installed (pip install kernel-tuner)")
    if setting.dry:
        pytest.skip("it needs an NVIDIA GPU")


def kernel_tuner(setting: Setting, problems: Path, most: int, *kernels: str) -> dict[str, Any]:
    """What benchmarks/gpu/kernel_tuner_run.py says."""
    output = setting.out / "kernel_tuner.json"
    script = [
        sys.executable,
        str(HERE / "kernel_tuner_run.py"),
        str(problems),
        str(most),
        str(output),
        *kernels,
    ]
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def test_beside_kernel_tuner_from_source(setting: Setting) -> None:
    """Neither is given binaries: ours measures the whole pool, Kernel Tuner some of the same pairs, a tuning
    for each problem. Ours compiles many kernels at once, while it measures, and each for all problems."""
    need_kernel_tuner(setting)
    try:
        find_gpu_toolchain("auto", setting.target)
    except BuildError as error:
        pytest.skip(str(error))
    problems = problems_of(setting, 20)
    with tempfile.TemporaryDirectory() as empty:
        compiling = replace(setting, kernels=Path(empty))
        ours = run_session(compiling, "from-source", problems, SAMPLES)
    measured = throughput(ours.records, ours.wall_s)
    note(setting, "throughput_from_source", measured)
    theirs = kernel_tuner(setting, some_problems(setting, str(problems), TUNED_PROBLEMS), KERNELS_FROM_SOURCE)
    times = measured.pairs_per_s / theirs["configurations_per_s"]
    figures = {"ours": measured.pairs_per_s, "times": times, "cores": os.cpu_count(), **theirs}
    note(setting, "kernel_tuner_from_source", figures)
    assert theirs["configurations"] == TUNED_PROBLEMS * KERNELS_FROM_SOURCE
    assert times >= LEAST_TIMES_KERNEL_TUNER
    assert measured.busy_share >= LEAST_BUSY_SHARE


def test_beside_kernel_tuner_with_binaries(setting: Setting) -> None:
    """Both find the same binaries. Its 20 runs of a short kernel are single launches; ours fill 20 graphs."""
    need_kernel_tuner(setting)
    if setting.kernels is None:
        pytest.skip("there is no folder of binaries that tile-oracle build made")
    problems = some_problems(setting, "forward_unseen_300", 3)
    ours = run_session(setting, "beside-kernel-tuner", problems, SAMPLES)
    measured = throughput(ours.records, ours.wall_s)
    theirs = kernel_tuner(setting, problems, MOST_WITH_BINARIES, str(setting.kernels))
    times = measured.pairs_per_s / theirs["configurations_per_s"]
    note(setting, "kernel_tuner_with_binaries", {"ours": measured.pairs_per_s, "times": times, **theirs})
    assert times > 1.0
