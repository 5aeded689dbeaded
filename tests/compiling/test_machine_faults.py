"""The machine's faults are not the kernels': they are said, and nothing of them is kept."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.pytest_project import PROBLEMS, TWO_KERNELS, Project
from tile_oracle.compiling.process import CompilerProcesses
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.problem import problem_from_id

SAYS = [
    f"collect2: fatal error: ld: {os.strerror(errno.ENOMEM)}",
    f"error: unable to open output file 'kernel.o': {os.strerror(errno.EMFILE)}",
    f"OSError: [Errno 5] {os.strerror(errno.EIO)}: 'kernel.hip'",
    f"ld.lld: error: failed to write output: {os.strerror(errno.EDQUOT)}",
    "LLVM ERROR: out of memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
]


@pytest.mark.parametrize("said", SAYS)
def test_a_compiler_that_the_machine_failed_says_nothing_about_the_kernel(said: str, tmp_path: Path) -> None:
    ended = CompilerProcesses().run(("sh", "-c", 'echo "$0" >&2; exit 1', said), tmp_path, 60)
    assert (ended.ok, ended.interrupted, ended.killed) == (False, True, True)
    assert said in ended.log


def test_a_compiler_that_started_is_believed(tmp_path: Path) -> None:
    (tmp_path / "compiler").write_text("#!/bin/sh\n")
    ended = CompilerProcesses().run((str(tmp_path / "compiler"),), tmp_path, 60)
    assert (ended.interrupted, ended.killed) == (True, True)
    assert ended.log.endswith("does not start: Permission denied")
    for line, ok in (("echo 'error: no member named x'; exit 1", False), ("echo 'no Cannot allocate'", True)):
        ended = CompilerProcesses().run(("sh", "-c", line), tmp_path, 60)
        assert (ended.ok, ended.interrupted) == (ok, False)


def test_a_binary_that_cannot_be_read_is_not_the_kernel_s_fault(tmp_path: Path) -> None:
    device = CpuDevice()
    try:
        device.load(problem_from_id(PROBLEMS[0]), 0)
        gone = device.check(tmp_path / "gone.so")
        assert (gone.status, gone.again) == ("device_lost", True)
        assert gone.detail.startswith("this machine cannot load it: No such file or directory: ")
        (tmp_path / "text.so").write_text("no library")
        assert device.check(tmp_path / "text.so").status == "build_error"
    finally:
        device.idle()  # a core that this process keeps is one that others wait for


def measured(project: Project) -> pd.DataFrame:
    return pd.read_parquet(project.folder / "reports" / "it" / "measurements")


@pytest.mark.slow
def test_a_resumed_session_measures_what_the_machine_s_fault_left_out(project: Project) -> None:
    project.problem_set("one.csv", PROBLEMS[:1])
    compiler = project.compiler("clang++", {})
    working = compiler.read_text()
    said = f"echo 'ld: {os.strerror(errno.EMFILE)}' >&2; exit 1"
    compiler.write_text(
        working.replace("exec ", f'case "$*" in *-dumpmachine*|*--version*) ;; *) {said};; esac\nexec ')
    )
    asked = ("--problem-set", "one.csv", "--target", "cpu", "--toolchain", compiler, "--run-name=it")
    session = (*asked, *TWO_KERNELS)
    first = project.pytest(*session)
    assert first.status != 0
    assert set(measured(project).status) == {"device_lost"}
    compiler.write_text(working)
    project.pytest(*session, "--resume")
    assert set(measured(project).status) <= {"ok", "noisy"}


def on_a_mount_without_code(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a shell command where `folder` is mounted noexec, for it alone."""
    unshare = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    mount = f"mount -t tmpfs -o noexec,mode=700 tmpfs {folder}"
    tried = subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mount can be made here: {tried.stderr.strip()}")
    return subprocess.run(
        [*unshare, "sh", "-c", f"{mount} && {command}"],
        cwd=folder.parent, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture
def no_code(project: Project) -> Path:
    project.problem_set("one.csv", PROBLEMS[:1])
    folder = project.folder / "no_code"
    folder.mkdir()
    return folder


REFUSAL = (
    "no_code: its file system is mounted noexec. "
    "Name a folder elsewhere with --build-dir or TILE_ORACLE_CACHE"
)


@pytest.mark.slow
def test_where_no_kernel_can_be_loaded_sessions_are_refused_and_builds_are_not(no_code: Path) -> None:
    line = f"{sys.executable} -m pytest --problem-set one.csv --target cpu --build-dir=no_code --run-name it"
    done = on_a_mount_without_code(line, no_code)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    (told,) = [one for one in (done.stdout + done.stderr).splitlines() if "no kernel can be loaded" in one]
    assert told.endswith(REFUSAL)
    assert not list((no_code.parent / "reports").glob("it/measurements/*"))
    done = on_a_mount_without_code(f"{sys.executable} -m tile_oracle.cli doctor --build-dir no_code", no_code)
    (told,) = [line for line in done.stdout.splitlines() if "noexec" in line]
    assert told.startswith("  missing loading: no kernel can be loaded from ")
    assert told.endswith(REFUSAL)
    assert "target cpu: kernels can run here" not in done.stdout
    line = "-m tile_oracle.cli build --kernel-set tiny --kernel-filter 'tile_m == 16' -o no_code/built"
    done = on_a_mount_without_code(f"{sys.executable} {line}", no_code)
    assert done.returncode == 0, done.stdout + done.stderr
