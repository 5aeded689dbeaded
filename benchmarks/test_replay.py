"""How long a replayed session takes: a validation set times the default pool, 90,000 made-up pairs, and the
135,746 shipped pairs of forward_validation_300.

    pytest benchmarks/test_replay.py --benchmark-only

What is timed is the whole process, from the start of Python to the written report, with a trained model that
ranks every pair. The file of --benchmark-json has the size of the oracle file, and processor time and peak
memory of the last session, too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tile_oracle.commands.merge import write_oracle
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


def replay(problem_set: str, cwd: Path) -> tuple[str, resource.struct_rusage]:
    """Runs a session that replays a set. Returns what it printed, and what it used. Its modules are compiled
    once, as those of an installed package are."""
    command = [sys.executable, "-m", "pytest", "-q", "--problem-set", problem_set, "--target", "replay"]
    command += ["--allow", "no-baseline,in-sample"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(cwd / "bytecode")
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said[-2000:]
    return said, usage


def note(benchmark: Any, pairs: int, usage: resource.struct_rusage) -> None:
    """Adds to the file of --benchmark-json what the last session used."""
    benchmark.extra_info["pairs"] = pairs
    benchmark.extra_info["processor_s"] = usage.ru_utime + usage.ru_stime
    benchmark.extra_info["peak_mb"] = usage.ru_maxrss / 1024


def test_replay_of_a_validation_set(project: Path, benchmark: Any) -> None:
    (oracle,) = (project / "models").glob("*/*/*/*.parquet")
    said, usage = benchmark.pedantic(replay, (SET, project), rounds=3, warmup_rounds=1)
    assert "90,000 pairs replayed" in said
    benchmark.extra_info["oracle_bytes"] = oracle.stat().st_size
    note(benchmark, 90_000, usage)


def test_replay_of_shipped_records(tmp_path: Path, benchmark: Any) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    said, usage = benchmark.pedantic(replay, ("forward_validation_300", tmp_path), rounds=3, warmup_rounds=1)
    assert "135,746 pairs replayed" in said
    note(benchmark, 135_746, usage)
