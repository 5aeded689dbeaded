"""How much of the time the GPU works, how fast configurations are measured, and whether two runs agree."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from benchmarks.gpu.figures import agreement, oracles, throughput
from benchmarks.gpu.setting import HERE, Setting, environment, note, run_session, some_problems

SAMPLES = "--samples=20"
LEAST_BUSY_SHARE = 0.60
LEAST_TIMES_KERNEL_TUNER = 5.0
LEAST_AGREEING_SHARE = 0.95


def problems_of(setting: Setting, count: int):  # type: ignore[no-untyped-def]
    """TILE_ORACLE_FIGURES_PROBLEMS=300 for all of the set."""
    if setting.dry:
        return some_problems(setting, "forward_smoke", 2)
    return some_problems(
        setting, "forward_validation_300", int(os.environ.get("TILE_ORACLE_FIGURES_PROBLEMS", count))
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


def test_beside_kernel_tuner(setting: Setting) -> None:
    """Both tune the same binaries over the same pairs, compiled beforehand, verified, 20 timed runs each."""
    if setting.target == "gfx950":
        pytest.skip("the backend for Kernel Tuner is over CUDA's driver")
    if importlib.util.find_spec("kernel_tuner") is None:
        pytest.skip("Kernel Tuner is not installed (pip install kernel-tuner)")
    if setting.dry or setting.kernels is None:
        pytest.skip("it runs binaries of a folder that tile-oracle build made, on an NVIDIA GPU")
    problems = some_problems(setting, "forward_validation_300", 3)
    ours = run_session(setting, "beside-kernel-tuner", problems, SAMPLES)
    measured = throughput(ours.records, ours.wall_s)
    output = setting.out / "kernel_tuner.json"
    script = [
        sys.executable,
        str(HERE / "kernel_tuner_run.py"),
        str(problems),
        str(setting.kernels),
        str(output),
    ]
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    theirs = json.loads(output.read_text())
    times = measured.pairs_per_s / theirs["configurations_per_s"]
    note(setting, "kernel_tuner", {"ours": measured.pairs_per_s, "times": times, **theirs})
    assert times >= LEAST_TIMES_KERNEL_TUNER
