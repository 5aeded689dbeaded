"""A fleet over two emulated GPUs of this machine: each device's process has one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.test_sessions_on_gpu import FEW_KERNELS, SMALL_PROBLEMS, held_until_all_are_wanted
from tests.kernels.emulated_gpu import machine as emulated
from tests.pytest_project import SHORTLY, Finished, Project, twice
from tile_oracle.compiling.toolchain import zig_folder


@pytest.mark.slow
def test_every_device_measures_on_a_gpu_of_its_own(
    project: Project, tmp_path: Path, emulated_machine: Callable[[str], emulated.EmulatedMachine]
) -> None:
    if zig_folder() is None:
        pytest.skip("the emulated GPU needs the ziglang wheel")
    machine = emulated_machine("sm_90")
    project.problem_set("four.csv", SMALL_PROBLEMS)
    with held_until_all_are_wanted(tmp_path, 2) as locks:
        process = project.start(
            "--target=sm_90",
            "--problem-set=four.csv",
            f"--kernel-filter={FEW_KERNELS.format(vector=8)}",
            "--model=none",
            "-p",
            emulated.PLUGIN,
            f"--toolchain={machine.compiler}",
            *SHORTLY,
            "--fleet=local",
            environment=machine.environment(2) | locks,
        )
        output, _ = process.communicate()
    done = Finished(process.returncode, output)
    assert done.status == 0, done.output[-4000:]
    records = project.records()
    assert twice(records).empty
    first = records[records["round"] == 0]
    assert set(first["problem"]) == set(SMALL_PROBLEMS)
    assert set(first["status"]) <= {"ok", "noisy", "unsupported"}
