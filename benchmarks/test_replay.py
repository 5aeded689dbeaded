"""How long a replayed session takes: a validation set times the default pool, 90,000 made-up pairs.

    pytest benchmarks/test_replay.py --benchmark-only

What is timed is the whole process, from the start of Python to the written report, with a trained model that
ranks every pair. The file of --benchmark-json has the size of the oracle file and the processor
time of a session, too.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tile_oracle.commands.oracle import write_oracle
from tile_oracle.kernel import Kernel
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Problem
from tile_oracle.problem_set import load_problem_set
from tile_oracle.record.dataset_file import write_dataset
from tile_oracle.record.schema import arrow_schema
from tile_oracle.training.recipe import recipe_named
from tile_oracle.training.train import train

SET, ARCH = "forward_unseen_300", "gfx950"
START = pd.Timestamp("2026-01-02", tz="UTC")


def made_up(problems: tuple[Problem, ...]) -> pd.DataFrame:
    """Every pair of the default pool: a start, the flops at a rate that the tile decides, 3 % of noise."""
    random = np.random.default_rng(0)
    pools: dict[object, tuple[Kernel, ...]] = {}
    rows: list[dict[str, Any]] = []
    for problem in problems:
        kind = problem.kind
        pool = pools.setdefault(kind, tuple(pool_of_kind(kind, arch=ARCH, rules="default", where=None)))
        for kernel in pool:
            fit = 1 + 0.1 * abs(np.log2(kernel.tile_m * kernel.tile_n / 4096))
            noise = float(np.exp(0.03 * random.standard_normal()))
            latency_ms = (0.004 + problem.flops * fit / 2e11) * noise
            rows.append(
                {
                    **kernel.as_row(),
                    **problem.as_row(),
                    "run": "made-up",
                    "time": START + pd.Timedelta(milliseconds=50 * len(rows)),
                    "round": 0,
                    "op": problem.op,
                    "problem": problem.id,
                    "kernel": kernel.name,
                    "status": "ok",
                    "latency_ms": latency_ms,
                    "latency_min_ms": 0.98 * latency_ms,
                    "spread": float(0.1 * random.random()),
                    "samples": int(random.integers(20, 300)),
                    "tflops": problem.tflops(latency_ms),
                    "target": ARCH,
                    "arch": ARCH,
                    "device": "Made-up Accelerator",
                }
            )
    return pd.DataFrame(rows, columns=arrow_schema().names)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model in models/, trained on a quarter of the problems, and its oracle."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "pytest.ini").write_text("[pytest]\n")
    problem_set = load_problem_set(SET)
    records = made_up(problem_set.problems)
    write_dataset(records, folder / "records.parquet")
    some = {problem.id for problem in problem_set.problems[::4]}
    model = folder / "models" / "made_up"
    train(records[records["problem"].isin(some)], recipe=recipe_named("log_time"), n_splits=2).save(model)
    write_oracle([folder / "records.parquet"], model=model, problem_set=problem_set)
    return folder


def test_replay_of_a_validation_set(project: Path, benchmark: Any) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--problem-set", SET, "--target", "replay"]
    command += ["--allow", "no-baseline,in-sample"]
    (oracle,) = (project / "models").glob("*/*/*/*.parquet")

    def replay() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = benchmark.pedantic(replay, rounds=3, iterations=1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "90,000 pairs replayed" in done.stdout
    benchmark.extra_info["oracle_bytes"] = oracle.stat().st_size
    benchmark.extra_info["pairs"] = 90_000
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    benchmark.extra_info["processor_s_per_session"] = spent_s / 3
