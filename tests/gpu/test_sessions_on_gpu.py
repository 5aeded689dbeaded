"""Whole pytest sessions on a GPU: one run, one that is killed and resumed, several workers, a budget.

TILE_ORACLE_FIGURES_KERNELS names a folder that `tile-oracle build` made, for machines without a compiler;
TILE_ORACLE_FIGURES_TARGET=cpu runs all of it on the CPU, to find out whether it would run at all.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.gpu.run import load_plugin
from harness.target.device_state import why_not_readable
from harness.target.gpu_presence import amd_presence, nvidia_presence
from tests.pytest_project import Finished, Project, twice

GIVEN = os.environ.get("TILE_ORACLE_FIGURES_TARGET")
KERNELS = os.environ.get("TILE_ORACLE_FIGURES_KERNELS")
PROBLEMS = (
    "forward-bf16-n2-c64-k64-i14x14-f3x3-p1",
    "forward-bf16-n1-c96-k64-i9x9-f1x1",
    "forward-bf16-n1-c32-k128-i13x13-f3x3-s2",
    "forward-bf16-n3-c7-k9-i6x5-f3x3-p1",
)


@pytest.fixture(scope="module")
def target() -> str:
    there = {"gfx950": amd_presence(), "sm_90": nvidia_presence()}
    name = GIVEN or next((name for name, presence in there.items() if presence.usable), None)
    if name is None:
        pytest.skip("; ".join(presence.why for presence in there.values()))
    return name


class GpuProject:
    """A user's project whose sessions run on the GPU."""

    def __init__(self, project: Project, target: str) -> None:
        self.project, self.target = project, target
        project.problem_set("four.csv", PROBLEMS)

    def options(self, *more: str) -> list[str]:
        """Values in one word with their option: pytest takes a folder behind a space for a test's."""
        cpu = self.target == "cpu"
        kernels = "pipeline in ('basic_v1', 'compv3')" + ("" if cpu else " and tile_m == 64")
        options = [
            f"--target={self.target}",
            "--problem-set=four.csv",
            f"--kernel-set={'tiny' if cpu else 'default'}",
            f"--kernel-filter={kernels}",
            "--model=none",
            "-v",
        ]
        if KERNELS:
            options.append(f"--build-dir={KERNELS}")
        return [*options, *load_plugin(), *more]

    def run(self, *more: str) -> Finished:
        return self.project.pytest(*self.options(*more))

    def start(self, *more: str) -> subprocess.Popen[str]:
        return self.project.start(*self.options(*more))

    @property
    def records(self) -> pd.DataFrame:
        return self.project.records()


@pytest.fixture
def gpu(project: Project, target: str) -> GpuProject:
    return GpuProject(project, target)


def complete(gpu: GpuProject, finished: Finished) -> pd.DataFrame:
    """The first round of a session that measured all that it was asked for."""
    assert finished.status == 0, finished.output[-4000:]
    records = gpu.records
    assert not len(twice(records))
    first = records[records["round"] == 0]
    assert set(first["problem"]) == set(PROBLEMS)
    assert set(first["status"]) <= {"ok", "noisy", "unsupported"}, first["detail"].unique()
    kernels = first["kernel"].nunique()
    assert kernels >= 4
    assert len(first) == kernels * len(PROBLEMS)
    return first


def test_a_session_measures_and_records_what_made_it(gpu: GpuProject) -> None:
    finished = gpu.run()
    first = complete(gpu, finished)
    assert f"target: {gpu.target}" in finished.output
    ok = first[first["status"] == "ok"]
    assert len(ok) > 0.8 * len(first)
    assert set(ok["target"]) == {gpu.target}
    for column in ("device", "driver", "toolchain", "source_hash"):
        assert (ok[column].fillna("") != "").all(), column
    assert (ok["busy_ms"] > 0).all()
    if gpu.target == "cpu":
        return
    for column in ("vgprs", "lds_bytes", "spills", "workgroups_per_cu", "loop_matrix_instructions"):
        assert ok[column].notna().all(), column
    assert (ok["workgroups_per_cu"] >= 1).all()
    if not why_not_readable("nvidia" if gpu.target == "sm_90" else "amd"):
        assert ok["clock_mhz"].notna().any()


def test_a_session_that_is_killed_goes_on(gpu: GpuProject) -> None:
    process = gpu.start("--resume")
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += "PASSED" in line
        if seen >= 5:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    finished = gpu.run("--resume")
    assert "(resumed)" in finished.output
    complete(gpu, finished)
    assert len(gpu.project.runs) == 1


def test_two_workers_share_what_gpus_there_are(gpu: GpuProject) -> None:
    finished = gpu.run("-n", "2")
    complete(gpu, finished)
    (run,) = gpu.project.runs
    writers = {path.name.split("-")[1] for path in (run / "measurements").glob("*.parquet")}
    assert len(writers) == 2, "each worker writes parts of its own"


def test_a_budget_ends_a_session_that_can_go_on(gpu: GpuProject) -> None:
    """How far it comes is the machine's affair; what it began is complete, and the rest is done later."""
    finished = gpu.run("--budget=1s", "--kernel-budget=50ms", "--resume")
    assert finished.status in (0, 5), finished.output[-3000:]
    (run,) = gpu.project.runs
    measured = bool(list((run / "measurements").glob("*")))
    assert ("the budget of 1s is spent" in finished.output) == measured
    complete(gpu, gpu.run("--resume"))


def test_cold_caches_are_slower(gpu: GpuProject) -> None:
    warm = complete(gpu, gpu.run("--run-name=warm"))
    (folder,) = gpu.project.runs
    finished = gpu.run("--run-name=cold", "--cold-cache")
    assert finished.status == 0, finished.output[-3000:]
    cold = gpu.project.records(folder.with_name("cold"))
    cold = cold[cold["round"] == 0]
    assert set(cold["cache"]) == {"cold"}
    both = warm.merge(cold, on=["problem", "kernel"], suffixes=("_warm", "_cold"))
    ratio = (both["latency_ms_cold"] / both["latency_ms_warm"]).dropna()
    assert ratio.median() > 1.0


def test_the_project_is_where_it_was(gpu: GpuProject, tmp_path: Path) -> None:
    """Reports are the project's own, wherever the kernels lie."""
    finished = gpu.run("-k", "c96")
    assert finished.status == 0, finished.output[-3000:]
    assert list((gpu.project.folder / "reports").glob("*/report.html"))
