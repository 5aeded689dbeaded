"""A pytest session on a GPU with kernels built by nvcc: checked and timed like others."""

from __future__ import annotations

import pytest

from benchmarks.gpu.run import load_plugin
from tests.pytest_project import Project
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain
from tile_oracle.errors import BuildError
from tile_oracle.targets.gpu_presence import nvidia_presence

PROBLEMS = tuple(
    f"{direction}-{rest}"
    for direction in ("forward", "bwd_data", "bwd_weight")
    for rest in ("bf16-n2-c64-k64-i14x14-f3x3-p1", "fp16-n3-c7-k9-i6x5-f3x3-s2-p1")
)


@pytest.fixture
def identity() -> str:
    """Records of kernels built with nvcc."""
    presence = nvidia_presence()
    if not presence.usable:
        pytest.skip(presence.why)
    try:
        return find_gpu_toolchain("nvcc", "sm_90").identity
    except BuildError as error:
        pytest.skip(str(error))


def test_what_nvcc_builds_is_right(project: Project, identity: str) -> None:
    project.problem_set("six.csv", PROBLEMS)
    finished = project.pytest(
        *("--target=sm_90", "--toolchain=nvcc", "--problem-set=six.csv", "--kernel-set=tiny"),
        *("--model=none", *load_plugin()),
    )
    assert finished.status == 0, finished.output[-4000:]
    records = project.records()
    assert set(records["problem"]) == set(PROBLEMS)
    assert set(records["status"]) <= {"ok", "noisy", "unsupported"}, records["detail"].unique()
    ok = records[records["status"] == "ok"]
    assert set(ok["problem"]) == set(PROBLEMS)
    assert set(ok["toolchain"]) == {identity}
