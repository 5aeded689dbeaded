"""The CPU device in this process, with kernels that do not crash: checks and timed runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from evil_target import evil_kernel, small_problem

from tile_oracle.compiling.builder import Builder
from tile_oracle.device import cpu as cpu_device
from tile_oracle.device.base import KernelFailed, ProblemRefused
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.problem import Problem, problem_from_id

PAGED = problem_from_id("paged_attention-bf16-bf16-b2-h2-g1-q1-k5-d64-p16")
PROBLEM = small_problem(N=2, C=6, K=10, G=2, Hi=16, Wi=15)


def binary(builder: Builder, mode: str) -> Path:
    built = builder.submit(evil_kernel(mode)).result().binary
    return built.path


@pytest.mark.parametrize("mode", ["good", "negative_zero", "slow"])
def test_a_correct_kernel_passes_and_is_timed(mode: str, device: CpuDevice, evil_builder: Builder) -> None:
    device.load(PROBLEM, 1)
    path = binary(evil_builder, mode)
    result = device.check(path)
    assert (result.status, result.kind, result.tainted) == ("ok", "full", False)
    assert result.points > 1000
    before = device.kernel_seconds
    nanoseconds = device.sample(path, 5)
    assert nanoseconds.shape == (5,)
    assert (nanoseconds > 0).all()
    assert device.kernel_seconds - before >= nanoseconds.sum() / 1e9


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        ("wrong", "wrong", "1 of 4,800 values wrong, at (1, 15, 14, 1, 4) got"),
        ("nan_value", "wrong", "; 1 of 4,800 values are NaN"),
        ("unwritten", "wrong", "; left 300 of 4,800 values unwritten"),
        ("underrun", "wrong", "wrote outside its output or workspace"),
        ("error_code", "wrong", "the kernel returned 7"),
        ("refuses", "unsupported", "the kernel refused"),
        ("huge_workspace", "unsupported", "its workspace: "),
        ("other_abi", "build_error", "its ABI is 2, tile-oracle's 1"),
    ],
)
def test_a_wrong_kernel_is_detected(
    mode: str, status: str, said: str, device: CpuDevice, evil_builder: Builder
) -> None:
    device.load(PROBLEM, 1)
    for _ in range(2):  # without poison, the second run would find the first one's output
        result = device.check(binary(evil_builder, mode))
        assert result.status == status
        assert said in result.detail
        assert result.tainted == (mode == "underrun")


def test_a_correct_kernels_output_does_not_help_the_next(device: CpuDevice, evil_builder: Builder) -> None:
    device.load(PROBLEM, 1)
    assert device.check(binary(evil_builder, "good")).status == "ok"
    assert device.check(binary(evil_builder, "unwritten")).status == "wrong"
    assert device.check(binary(evil_builder, "good")).status == "ok"


def test_a_kernel_that_fails_when_timed_says_so(device: CpuDevice, evil_builder: Builder) -> None:
    device.load(PROBLEM, 1)
    path = binary(evil_builder, "time_error")
    assert device.check(path).status == "ok"
    with pytest.raises(KernelFailed, match="returned 5 when it was timed"):
        device.sample(path, 3)


@pytest.mark.parametrize(
    "problem", [PROBLEM, PAGED, problem_from_id("softmax-bf16-r3-c100")], ids=lambda one: one.op
)
def test_what_timed_runs_need_is_made_before_the_first_kernels_time_limit_begins(
    problem: Problem, device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.load(problem, 1)
    data = device._require()
    for what in {"_timed_set", "operands", "bounds"} & set(dir(data)):
        monkeypatch.setattr(type(data), what, lambda *_, **__: pytest.fail("made within the limit"))
    assert data.timed.mismatch() is not None  # nothing has run
    assert device._timed_arguments is not None


def test_a_problem_that_does_not_fit_is_refused_before_any_allocation(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProblemRefused, match=r"needs [0-9.]+ GiB of memory .* GiB are free"):
        device.load(small_problem(N=2**31 - 1, Hi=2**12, Wi=2**12, C=1, K=1), 1)
    monkeypatch.setattr(cpu_device, "memory_available_bytes", lambda: 1000)
    with pytest.raises(ProblemRefused):
        device.load(PROBLEM, 1)


@pytest.mark.parametrize(("flush", "sizes"), [(True, [64, 128, 64, 4096]), (False, [64, 128, 128, 4096])])
def test_one_workspace_is_kept_for_checks_and_one_for_timing(
    flush: bool, sizes: list[int], device: CpuDevice
) -> None:
    """The many sizes of a pool together could exceed the memory. That for checks has each kernel's size."""
    device.load(PROBLEM, 1)
    args, kept = device._arguments[0], []
    for number, size in enumerate((64, 100, 64, 4096)):
        code = type("Library", (), {"to_workspace_bytes": staticmethod(lambda _, size=size: size)})
        library = cpu_device._Library(code, number + 1)  # type: ignore[arg-type]
        buffer = device._attach_workspace(library, args, flush=flush)
        assert args.workspace == buffer.address
        assert args.workspace % 64 == 0
        assert list(device._workspaces.values()) == [buffer]
        kept.append(buffer.size)
    assert kept == sizes


def test_the_device_names_itself(device: CpuDevice) -> None:
    assert device.info.name
    assert device.info.driver.startswith("Linux ")


def test_every_batch_of_runs_has_its_own_operands(device: CpuDevice, evil_builder: Builder) -> None:
    device.load(PROBLEM, 1)
    path = binary(evil_builder, "good")
    seen = set()
    for _ in range(6):
        device.sample(path, 3)
        timed = device._require().timed
        assert device.verify(path).status == "ok"
        seen.add(timed.inputs[1].view(np.uint8, (timed.inputs[1].size,)).tobytes())
    assert len(seen) == 6
