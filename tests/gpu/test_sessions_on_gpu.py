"""Whole pytest sessions on a GPU: normal, killed and resumed, several workers, with a budget, with faults.

Each runs on this machine's GPU, and on an emulated one of either architecture behind HIP's or CUDA's own
functions (tests/kernels/emulated_gpu), where times mean nothing and the problems are small.

TILE_ORACLE_FIGURES_KERNELS names a folder that `tile-oracle build` made, for machines without a compiler,
TILE_ORACLE_FIGURES_FILTER the --kernel-filter that it was made with, and TILE_ORACLE_GPU_TEST_KERNELS one of
the kernels that misbehave (test_on_gpu.py).
TILE_ORACLE_FIGURES_TARGET=cpu runs everything on the CPU, as a dry run.
TILE_ORACLE_EMULATED_SESSIONS=all runs everything on both emulated GPUs, not only a part on each.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.gpu.run import load_plugin
from tests.device.test_core_lock import can_be_locked
from tests.evil_gpu_kernels.evil_gpu import evil_gpu_kernel, evil_headers
from tests.kernels.emulated_gpu import machine as emulated
from tests.processes import wait_until
from tests.pytest_project import SHORTLY, Finished, Project, twice
from tile_oracle.compiling.isa import AMD_ARCHS
from tile_oracle.compiling.toolchain import zig_folder
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.lock_folder import LOCK_DIR_VARIABLE
from tile_oracle.targets.device_state import why_not_readable
from tile_oracle.targets.gpu_presence import amd_presence, nvidia_presence

ROOT = Path(__file__).resolve().parents[2]
GIVEN = os.environ.get("TILE_ORACLE_FIGURES_TARGET")
KERNELS = os.environ.get("TILE_ORACLE_FIGURES_KERNELS")
KERNELS_FILTER = os.environ.get("TILE_ORACLE_FIGURES_FILTER")
EVIL_KERNELS = os.environ.get("TILE_ORACLE_GPU_TEST_KERNELS")
ALL = os.environ.get("TILE_ORACLE_EMULATED_SESSIONS") == "all"
PROBLEMS = (
    "forward-bf16-n2-c64-k64-i14x14-f3x3-p1",
    "forward-bf16-n1-c96-k64-i9x9-f1x1",
    "forward-bf16-n1-c32-k128-i13x13-f3x3-s2",
    "forward-bf16-n3-c7-k9-i6x5-f3x3-p1",
)
SMALL_PROBLEMS = (
    "forward-bf16-n2-c64-k64-i5x4-f3x3-p1",
    "forward-bf16-n1-c96-k64-i5x5-f1x1",
    "forward-bf16-n1-c32-k72-i7x7-f3x3-s2",
    "forward-bf16-n3-c7-k9-i4x5-f3x3-p1",
)
FEW_KERNELS = (
    "tile_m == 64 and tile_n == 64 and tile_k == 64 and scheduler == 'intrawave' and not split_image "
    "and not explicit_gemm and num_groups_to_merge == 1 and warp_tile_m == 16 and vector_a == {vector} and "
    "(pipeline in ('basic_v1', 'mem', 'compv3') and not double_smem_buffer or pipeline == 'compv4')"
)
IN_EVERY_TEST_RUN = {
    "test_a_session_measures_and_records_what_made_it": ("gfx950", "gfx942", "sm_90"),
    "test_faults_are_recorded_and_the_next_kernel_is_right": ("gfx950", "sm_90"),
    "test_two_workers_share_what_gpus_there_are": ("gfx950",),
    "test_a_fault_may_be_an_error_number_in_hip_too": ("gfx950",),
    "test_a_line_that_is_wrong_in_a_kernel_makes_it_wrong": ("sm_90",),
    "test_a_launch_may_ask_for_all_that_it_gets_unasked": ("sm_90",),
}
"""Sessions on emulated GPUs: test -> architectures. The others together take minutes."""


@dataclass(frozen=True)
class Where:
    """A GPU and the options of its sessions. gpus: number of GPUs. machine: None for real ones."""

    target: str
    problems: tuple[str, ...]
    kernel_filter: str
    options: tuple[str, ...] = ()
    gpus: int = 1
    machine: emulated.EmulatedMachine | None = None

    def environment(self, gpus: int = 1) -> dict[str, str]:
        return self.machine.environment(gpus) if self.machine is not None else {}


def real_gpu() -> Where:
    there = {arch: amd_presence().of(arch) for arch in AMD_ARCHS} | {"sm_90": nvidia_presence()}
    name = GIVEN or next((name for name, presence in there.items() if presence.usable), None)
    if name is None:
        pytest.skip("; ".join(presence.why for presence in there.values()))
    pipelines = "pipeline in ('basic_v1', 'compv3')"
    if name == "cpu":
        return Where(name, PROBLEMS, pipelines, ("--kernel-set=tiny",))
    pipelines += " and tile_m == 64" + (f" and ({KERNELS_FILTER})" if KERNELS_FILTER else "")
    if emulated.NODES in os.environ:  # dry_run.py: it is not a real GPU
        return Where(name, SMALL_PROBLEMS, pipelines, ("-p", emulated.PLUGIN, *SHORTLY))
    chosen = [one for one in os.environ.get(emulated.VISIBLE[name], "").split(",") if one.strip()]
    return Where(name, PROBLEMS, pipelines, gpus=max(1, len(chosen) or there[name].devices))


@pytest.fixture(
    scope="module", params=["gpu", "emulated_gfx950", "emulated_gfx942", "emulated_gfx90a", "emulated_sm_90"]
)
def where(
    request: pytest.FixtureRequest, emulated_machine: Callable[[str], emulated.EmulatedMachine]
) -> Where:
    if request.param == "gpu":
        return real_gpu()
    if GIVEN or zig_folder() is None:
        pytest.skip("only the GPU is asked for" if GIVEN else "the emulated GPU needs the ziglang wheel")
    arch = request.param.removeprefix("emulated_")
    asked = (getattr(one, "originalname", "") for one in request.session.items)
    if not ALL and not any(arch in IN_EVERY_TEST_RUN.get(name, ()) for name in asked):
        pytest.skip("TILE_ORACLE_EMULATED_SESSIONS=all runs it")
    machine = emulated_machine(arch)
    kernels = FEW_KERNELS.format(vector=8 if arch == "sm_90" else 4)
    options = ("-p", emulated.PLUGIN, f"--toolchain={machine.compiler}", *SHORTLY)
    return Where(arch, SMALL_PROBLEMS, kernels, options, machine=machine)


class GpuProject:
    """A user's project whose sessions run on the GPU."""

    def __init__(self, project: Project, where: Where) -> None:
        self.project, self.where, self.target = project, where, where.target
        project.problem_set("four.csv", where.problems)

    def options(self, *more: str) -> list[str]:
        """Joins options and values with =, since pytest takes a separate folder for a test path."""
        options = [
            f"--target={self.target}",
            "--problem-set=four.csv",
            f"--kernel-filter={self.where.kernel_filter}",
            "--model=none",
            "-v",
            *self.where.options,
        ]
        if KERNELS and self.where.machine is None:
            options.append(f"--build-dir={KERNELS}")
        return [*options, *load_plugin(), *more]

    def run(self, *more: str, gpus: int = 1, environment: Mapping[str, str] | None = None) -> Finished:
        given = {**self.where.environment(gpus), **(environment or {})}
        return self.project.pytest(*self.options(*more), environment=given)

    def start(self, *more: str) -> subprocess.Popen[str]:
        return self.project.start(*self.options(*more), environment=self.where.environment())

    @property
    def records(self) -> pd.DataFrame:
        return self.project.records()


@pytest.fixture
def gpu(request: pytest.FixtureRequest, project: Project, where: Where) -> GpuProject:
    archs = IN_EVERY_TEST_RUN.get(request.node.originalname, ())
    if where.machine is not None and not ALL and where.target not in archs:
        pytest.skip("TILE_ORACLE_EMULATED_SESSIONS=all runs it")
    return GpuProject(project, where)


def complete(gpu: GpuProject, finished: Finished) -> pd.DataFrame:
    """The first round of a session that measured everything it was asked to."""
    assert finished.status == 0, finished.output[-4000:]
    records = gpu.records
    assert not len(twice(records))
    first = records[records["round"] == 0]
    assert set(first["problem"]) == set(gpu.where.problems)
    assert set(first["status"]) <= {"ok", "noisy", "unsupported"}, first["detail"].unique()
    kernels = first["kernel"].nunique()
    assert kernels >= 4
    assert len(first) == kernels * len(gpu.where.problems)
    return first


@pytest.mark.slow
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
    # Short kernels are timed several at a time: a sample takes longer than the kernel. How many is set by its
    # first runs, which may take twice as long.
    short = ok[ok["latency_ms"] < 0.1]
    of_least = short["busy_ms"] / (short["samples"] * (100 * short["latency_ms"]).clip(upper=0.2))
    assert (of_least >= 1).mean() > 0.9
    assert of_least.min() > 0.25
    if gpu.where.machine is not None:
        assert len(short)
    for column in ("vgprs", "lds_bytes", "spills", "workgroups_per_cu", "loop_matrix_instructions"):
        assert ok[column].notna().all(), column
    assert (ok["workgroups_per_cu"] >= 1).all()
    if not why_not_readable("nvidia" if gpu.target == "sm_90" else "amd"):
        assert ok["clock_mhz"].notna().any()


@contextmanager
def held_until_all_are_wanted(folder: Path, gpus: int) -> Iterator[dict[str, str]]:
    """Holds the locks of emulated GPUs until a process waits for each, however late one starts. Yields the
    environment of the processes."""
    (folder / "locks").mkdir(mode=0o700)
    names = [f"gpu-0000-e{number}-00-0" for number in range(gpus)]
    held = [(folder / "locks" / f"{name}.lock").open("w") for name in names]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)

    def let_go() -> None:
        wait_until(lambda: not any(can_be_locked(folder, f"{name}.waiting") for name in names))
        for file in held:
            file.close()

    thread = threading.Thread(target=let_go)
    thread.start()
    yield {LOCK_DIR_VARIABLE: str(folder / "locks")}
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 2])
def test_two_workers_share_what_gpus_there_are(gpu: GpuProject, gpus: int, tmp_path: Path) -> None:
    if gpu.where.machine is not None:
        with held_until_all_are_wanted(tmp_path, gpus) as environment:
            complete(gpu, gpu.run("-n", "2", gpus=gpus, environment=environment))
        return
    if gpus > 1 and gpu.where.gpus < gpus:
        pytest.skip(f"needs {gpus} GPUs")
    gpus = min(2, gpu.where.gpus)
    # A separate lock folder: the names of the locks show which GPUs were used for timing.
    finished = gpu.run("-n", "2", gpus=gpus, environment={LOCK_DIR_VARIABLE: str(tmp_path / "locks")})
    complete(gpu, finished)
    if gpu.target != "cpu":
        assert len(list((tmp_path / "locks").glob("gpu-*.lock"))) == gpus


@pytest.mark.parametrize(
    ("problems", "kernels"),
    [
        (
            ("bwd_weight-bf16-n2-c9-k21-i6x5-f3x2-p1x0", "bwd_weight-bf16-n1-c16-k8-i4x4x4-f2x1x2"),
            # With a second stage, which only sm_90's default set has, and without one.
            "tile_m == 32 and pipeline == 'basic_v1' and not double_smem_buffer "
            "and (two_stage or vector_a == 4)",
        ),
        (
            ("bwd_data-fp16-n2-g3-c9-k21-i6x5-f3x2-p1x0", "bwd_data-fp16-n2-c64-k32-i7x7-f3x3-s2-p1"),
            "tile_m == 64 and pipeline == 'compv3' and vector_a == 4 and not double_smem_buffer",
        ),
        (
            ("gemm-bf16-crr-m33-n70-k130", "gemm-bf16-crr-m64-n128-k64"),
            "tile_m == 64 and pipeline == 'compv3'",
        ),
    ],
    ids=["bwd_weight", "bwd_data", "gemm"],
)
def test_other_kinds_of_problems(gpu: GpuProject, problems: tuple[str, ...], kernels: str) -> None:
    if gpu.target == "cpu" or (KERNELS and gpu.where.machine is None):
        pytest.skip("needs a GPU, and a compiler for it")
    gpu.project.problem_set("others.csv", problems)
    narrowed = f"{kernels} and tile_n == 64 and tile_k == 64 and scheduler == 'intrawave'"
    if not problems[0].startswith("gemm"):
        narrowed += " and not split_image and num_groups_to_merge == 1"
    finished = gpu.run("--problem-set=others.csv", f"--kernel-filter={narrowed}")
    assert finished.status == 0, finished.output[-4000:]
    first = gpu.records
    first = first[first["round"] == 0]
    assert set(first["status"]) <= {"ok", "noisy", "unsupported"}, first["detail"].unique()
    assert set(first["problem"][first["status"] != "unsupported"]) == set(problems)


@pytest.mark.slow
def test_a_launch_may_ask_for_all_that_it_gets_unasked(gpu: GpuProject) -> None:
    """48 KiB plus the LDS that the kernel declares exceeds the default limit, which CUDA must raise first."""
    if gpu.target != "sm_90" or (KERNELS_FILTER and gpu.where.machine is None):
        pytest.skip("needs sm_90, and a kernel of its own")
    gpu.project.problem_set("one.csv", gpu.where.problems[1:2])
    kernels = (
        "tile_m == 32 and tile_n == 64 and tile_k == 128 and double_smem_buffer and not split_image "
        "and pipeline == 'basic_v1' and scheduler == 'intrawave'"
    )
    finished = gpu.run("--problem-set=one.csv", f"--kernel-filter={kernels}")
    assert finished.status == 0, finished.output[-4000:]
    records = gpu.records
    assert set(records["status"]) <= {"ok", "noisy"}, records["detail"].unique()
    assert (records["lds_bytes"] > 48 << 10).all()


# ---- binaries of another machine, and use of records -------------------------------------------------


# ---- kernels that misbehave --------------------------------------------------------------------------

FAULTS = (
    *("out_of_bounds", "illegal", "endless", "wrong", "unwritten", "beside", "changes_inputs", "other_abi"),
    *("too_much_lds", "drops_nan", "spreads_nan"),
)
ENDS = {
    "good": {"ok", "noisy"},
    **{name: {"crash"} for name in ("out_of_bounds", "illegal")},
    "endless": {"timeout"},
    **{name: {"wrong"} for name in ("wrong", "unwritten", "beside")},
    **{name: {"wrong"} for name in ("changes_inputs", "drops_nan", "spreads_nan")},
    "other_abi": {"build_error"},
    "too_much_lds": {"unsupported", "build_error"},
}
SMALL = "forward-bf16-n2-c8-k8-i9x9-f3x3-p1"


def evil_session(
    gpu: GpuProject, pool: list[tuple[str, int]], folder: Path, *more: str, **environment: str
) -> tuple[Finished, pd.DataFrame]:
    """A session over kernels of tests/evil_gpu_kernels on one problem, and the records of its first round."""
    if gpu.target == "cpu":
        pytest.skip("kernels that misbehave on the CPU are another folder's")
    gpu.project.problem_set("small.csv", (SMALL,))
    environment |= {"EVIL_GPU_HEADERS": str(evil_headers(folder)), "EVIL_GPU_POOL": json.dumps(pool)}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), gpu.where.environment().get("PYTHONPATH") or os.environ.get("PYTHONPATH")])
    )
    options = ["-p", "tests.evil_gpu_kernels.in_sessions", "--problem-set=small.csv", "--kernel-filter="]
    if EVIL_KERNELS and gpu.where.machine is None:
        options.append(f"--build-dir={EVIL_KERNELS}")
    finished = gpu.run(*options, "--kernel-timeout=4s", *more, environment=environment)
    records = gpu.records
    names = {evil_gpu_kernel(mode, variant).name: mode for mode, variant in pool}
    records = records[records["round"] == 0].sort_values("time", kind="stable", ignore_index=True)
    return finished, records.assign(mode=records["kernel"].map(names))


@pytest.mark.slow
def test_faults_are_recorded_and_the_next_kernel_is_right(gpu: GpuProject, tmp_path: Path) -> None:
    pool = [pair for number, mode in enumerate(FAULTS) for pair in (("good", 64 + number), (mode, 64))]
    finished, records = evil_session(gpu, pool, tmp_path / "evil")
    assert finished.status == 1, finished.output[-4000:]
    assert len(records) == len(pool)
    for mode, status in zip(records["mode"], records["status"], strict=True):
        assert status in ENDS[mode], f"{mode}: {records.to_string()}"
    for fault in ("out_of_bounds", "illegal", "endless"):
        (at,) = records.index[records["mode"] == fault]
        assert "good" in set(records["mode"][at + 1 :]), "a kernel was run after it"
    details = dict(zip(records["mode"], records["detail"], strict=True))
    assert "no result after 4 s" in details["endless"]
    assert "1 of 1,296 values wrong, at (0, 0, 0, 0, 5)" in details["wrong"]
    assert "wrote 2 bytes outside its output" in details["beside"]
    assert details["changes_inputs"] == "changed its inputs"
    if gpu.where.machine is not None:
        assert "writes 4 bytes out of bounds" in details["out_of_bounds"]
        assert "traps" in details["illegal"]


@pytest.mark.slow
def test_a_fault_may_be_an_error_number_in_hip_too(gpu: GpuProject, tmp_path: Path) -> None:
    if gpu.where.machine is None or gpu.target != "gfx950":
        pytest.skip("what a real runtime does is its own affair")
    pool = [("good", 65), ("out_of_bounds", 64), ("illegal", 64), ("good", 66)]
    _, records = evil_session(gpu, pool, tmp_path / "evil", EMULATED_HIP_FAULTS="code")
    assert records.set_index("mode")["status"].to_dict() == {
        **{"good": "ok", "out_of_bounds": "crash", "illegal": "crash"}
    }
    details = dict(zip(records["mode"], records["detail"], strict=True))
    assert "hipErrorIllegalAddress (700)" in details["out_of_bounds"]
    assert "hipErrorLaunchFailure (719)" in details["illegal"]


@pytest.mark.slow
def test_a_line_that_is_wrong_in_a_kernel_makes_it_wrong(gpu: GpuProject, tmp_path: Path) -> None:
    """The real kernels, without the last step of the pipelines that prefetch."""
    if gpu.where.machine is None:
        pytest.skip("needs a compiler, and shows nothing of the GPU")
    headers = shutil.copytree(data_folder("kernels") / "gpu", tmp_path / "gpu")
    text = (headers / "pipeline.hpp").read_text()
    right, wrong = "g.last_step - g.first_step)", "g.last_step - g.first_step - 1)"
    assert text.count(right) == 1
    (headers / "pipeline.hpp").write_text(text.replace(right, wrong))
    finished = gpu.run(
        "-p", "tests.evil_gpu_kernels.in_sessions", environment={"EVIL_GPU_HEADERS": str(headers)}
    )
    records = gpu.records
    assert set(records["status"]) == {"wrong"}
    assert records["detail"].str.contains("values wrong, at (", regex=False).all()
    assert records["tflops"].isna().all()
    assert finished.status == 1
    assert "0 of 4 problems" in finished.output
