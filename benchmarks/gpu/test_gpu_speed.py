"""The pool beside the vendor's library: cuDNN's speed, a large 3x3, and what there is to choose."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.figures import best_over_median, geometric_mean, oracles
from benchmarks.gpu.setting import HERE, Setting, environment, note, run_session, some_problems

LEAST_OF_CUDNN = 0.40
LEAST_TFLOPS = 250.0
LEAST_CHOICE = 1.5


def cudnn_ms(setting: Setting, problems: Path) -> dict[str, float]:
    """In a process of its own, which has the GPU for itself."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    output = setting.out / "cudnn.json"
    device = "cpu" if setting.dry else "cuda"
    script = [sys.executable, str(HERE / "cudnn.py"), str(problems), str(output), device]
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    found: dict[str, float] = json.loads(output.read_text())
    return found


def test_against_cudnn(setting: Setting) -> None:
    if setting.target == "gfx950":
        pytest.skip("cuDNN is NVIDIA's")
    name, count = ("forward_smoke", 2) if setting.dry else ("forward_unseen_300", 30)
    problems = some_problems(setting, name, count)
    found = oracles(run_session(setting, "speed", problems).records)
    choice = best_over_median(found)
    note(setting, "choice", {"problems": len(found), "best_over_median": choice})
    theirs = cudnn_ms(setting, problems)
    ratios = {
        problem: theirs[problem] / latency_ms
        for problem, latency_ms in found["oracle_latency_ms"].dropna().items()
    }
    share = geometric_mean(ratios.values())
    note(setting, "cudnn", {"problems": len(ratios), "geometric_mean_share": share, "shares": ratios})
    assert len(ratios) == len(theirs), "problems without an oracle"
    if not setting.dry:
        assert len(ratios) == 30
        assert share >= LEAST_OF_CUDNN
        assert choice >= LEAST_CHOICE


def test_a_large_3x3(setting: Setting) -> None:
    problems = some_problems(setting, "forward_smoke", 1) if setting.dry else HERE / "large_3x3.csv"
    found = oracles(run_session(setting, "large-3x3", problems).records)
    best = float(found["oracle_tflops"].max())
    note(setting, "large_3x3", {"tflops": best, "kernel": str(found["oracle_kernel"].iloc[0])})
    assert best > 0
    if not setting.dry:
        assert best >= LEAST_TFLOPS
