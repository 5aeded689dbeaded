"""On a GPU: misbehaving kernels run by the real worker; the next kernel is still correct.

On a machine without a compiler (a wheel, or clang), the kernels come from a folder that this file built
elsewhere:

    python tests/gpu/test_on_gpu.py sm_90 FOLDER              and there:
    TILE_ORACLE_GPU_TEST_KERNELS=FOLDER pytest tests/gpu
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.evil_gpu_kernels import evil_gpu as evil
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.isa import AMD_ARCHS
from tile_oracle.compiling.prebuild import prebuild
from tile_oracle.device import check_data, reference
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.sweep_settings import SweepSettings
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import number_formats
from tile_oracle.targets.gpu_presence import Presence, amd_presence, nvidia_presence
from tile_oracle.targets.target import Compiled, Target

EVIL = Path(__file__).parent.parent / "evil_gpu_kernels" / "evil_gpu.py"
PREBUILT = os.environ.get("TILE_ORACLE_GPU_TEST_KERNELS")
PROBLEM = GroupedConvProblem("forward", "bf16", 2, 2, 8, 8, 1, 9, 9, 3, 3, pad_h=1, pad_w=1)


def all_kernels() -> list[GroupedConvKernel]:
    """Every kernel that this file runs."""
    kernels = [evil.evil_gpu_kernel(mode) for mode in evil.MODES if mode != "before_workspace"]
    kernels += [evil.evil_gpu_kernel("good", variant) for variant in range(65, 72)]
    return [*kernels, two_stage("before_workspace"), two_stage("good")]


def two_stage(mode: str) -> GroupedConvKernel:
    kernel: GroupedConvKernel = evil.evil_gpu_kernel(mode, direction="bwd_weight", two_stage=True)
    return kernel


class GpuUnderTest(Target):
    """A target over the kernels of tests/evil_gpu_kernels."""

    def __init__(self, name: str, builder: Builder, presence: Presence) -> None:
        super().__init__(name, name, [Compiled(builder)], presence=presence)

    def refusal(self, kernel: GroupedConvKernel, problem: GroupedConvProblem) -> str | None:
        return None

    def timeout_s(self, problem: GroupedConvProblem) -> float:
        return 4.0

    def close(self) -> None:
        """The builder is the module's."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuUnderTest]:
    there = {arch: amd_presence().of(arch) for arch in AMD_ARCHS} | {"sm_90": nvidia_presence()}
    name = next((name for name, presence in there.items() if presence.usable), None)
    if name is None:
        pytest.skip("; ".join(presence.why for presence in there.values()))
    prebuilt = Path(PREBUILT) if PREBUILT else None
    with evil.evil_gpu_builder(tmp_path_factory.mktemp("evil"), name, prebuilt) as builder:
        yield GpuUnderTest(name, builder, there[name])


@pytest.fixture
def supervisor(target: GpuUnderTest) -> Iterator[Supervisor]:
    supervisor = Supervisor(target, SweepSettings(max_leaders=2))
    yield supervisor
    supervisor.close()


def outcomes(
    supervisor: Supervisor, kernels: list[GroupedConvKernel], problem: GroupedConvProblem = PROBLEM
) -> list[tuple[str, str]]:
    return [(m.status, m.detail) for m in supervisor.sweep(problem, kernels) if m.round == 0]


@pytest.mark.parametrize(
    ("mode", "status", "detail"),
    [
        ("out_of_bounds", "crash", ""),
        ("illegal", "crash", ""),
        ("endless", "timeout", "no result after"),
        ("beside", "wrong", "wrote 2 bytes outside its output"),
        ("wrong", "wrong", "1 of 1,296 values wrong, at (0, 0, 0, 0, 5)"),
        ("unwritten", "wrong", "left 1 of 1,296 values unwritten"),
        ("changes_inputs", "wrong", "changed its inputs"),
        ("every_eighth", "wrong or flaky", "when it was timed"),
        ("keeps_first_operand", "wrong", "when it was timed"),
        ("drops_nan", "wrong", "infinities and NaN"),
        ("spreads_nan", "wrong", "infinities and NaN"),
        ("other_abi", "build_error", "GPU ABI is 2"),
        ("too_much_lds", None, "cannot be "),
    ],
)
def test_the_next_kernel_is_right(supervisor: Supervisor, mode: str, status: str | None, detail: str) -> None:
    good = [evil.evil_gpu_kernel("good", variant) for variant in (65, 66)]
    before, bad, after = outcomes(supervisor, [good[0], evil.evil_gpu_kernel(mode), good[1]])
    assert before == after == ("ok", "")
    assert bad[0] in (status.split(" or ") if status else ("unsupported", "build_error"))
    assert detail in bad[1]


def test_a_workspace_has_guards_too(supervisor: Supervisor) -> None:
    problem = GroupedConvProblem("bwd_weight", "bf16", 2, 2, 8, 8, 1, 9, 9, 3, 3, pad_h=1, pad_w=1)
    found = outcomes(
        supervisor, [two_stage("good"), two_stage("before_workspace"), two_stage("good")], problem
    )
    assert [status for status, _ in found] == ["ok", "wrong", "ok"]
    assert "outside its workspace" in found[1][1]


def test_a_crash_in_each_kernel_loses_no_other(supervisor: Supervisor) -> None:
    good = [evil.evil_gpu_kernel("good", variant) for variant in range(65, 69)]
    bad = evil.evil_gpu_kernel("out_of_bounds")
    found = outcomes(supervisor, [good[0], bad, good[1], bad, good[2], bad, good[3]])
    assert [status for status, _ in found] == ["ok", "crash", "ok", "crash", "ok", "crash", "ok"]


REFERENCE_PROBLEMS = [
    GroupedConvProblem(direction, dtype, ndim, **sizes)  # type: ignore[arg-type]
    for direction in ("forward", "bwd_data", "bwd_weight")
    for dtype in ("bf16", "fp16", "fp32")
    for ndim, sizes in (
        (2, {"N": 2, "C": 12, "K": 20, "G": 2, "Hi": 9, "Wi": 7, "Y": 3, "X": 2, "stride_h": 2, "stride_w": 3}
            | {"pad_h": 1, "pad_w": 2, "dilation_h": 2}),
        (2, {"N": 1, "C": 1, "K": 7, "G": 1, "Hi": 5, "Wi": 5, "Y": 1, "X": 1}),
        (2, {"N": 3, "C": 443, "K": 3, "G": 1, "Hi": 6, "Wi": 5, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}),
        (2, {"N": 2, "C": 24, "K": 24, "G": 24, "Hi": 13, "Wi": 11, "Y": 3, "X": 3, "stride_h": 2}
            | {"stride_w": 2, "pad_h": 1, "pad_w": 1, "dilation_h": 4}),
        (2, {"N": 8, "C": 5, "K": 6, "G": 1, "Hi": 70, "Wi": 64, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}),
        (3, {"N": 2, "C": 6, "K": 9, "G": 3, "Hi": 5, "Wi": 6, "Y": 3, "X": 2, "pad_h": 1, "pad_w": 1}
            | {"Di": 7, "Z": 3, "stride_d": 2, "pad_d": 1, "dilation_d": 2}),
    )
]  # fmt: skip


@pytest.mark.parametrize("problem", REFERENCE_PROBLEMS, ids=lambda problem: problem.id)
def test_the_devices_reference_is_exact(problem: GroupedConvProblem, target: GpuUnderTest) -> None:
    """Compares the reference kernel, with which all others are compared, with integers on the host."""
    from tile_oracle.device.gpu_work import Buffer, DeviceWork

    driver = open_driver(target.name)
    work = DeviceWork(driver, target.sources[0].builder.device_work().path)
    storage = number_formats.STORAGE[problem.dtype]
    counts = [math.prod(shape) for shape in problem.operand_shapes]
    buffers = [Buffer(driver, count * storage.itemsize) for count in counts]
    first, second, out = (buffer.address for buffer in buffers)
    for pattern in (*check_data.mantissa(problem), check_data.dense(problem)):
        work.fill(problem, pattern, 20260, first, second)
        work.reference(problem, first, second, out)
        stored = [
            np.frombuffer(driver.copy_out(buffer.address, buffer.size_bytes), storage).reshape(shape)
            for buffer, shape in zip(buffers, problem.operand_shapes, strict=True)
        ]
        inputs = [number_formats.decode(values, problem.dtype) / pattern.scale for values in stored[:2]]
        bounds = pattern.first[1], max(pattern.second[1], pattern.cancelling + 1)
        for operand, most in zip(inputs, bounds, strict=True):
            assert 0 < np.abs(operand).max() <= most
        exact = reference.exact_output(problem, *(values.astype(np.int32) for values in inputs))
        wanted = number_formats.encode(exact * np.float32(pattern.result_scale), problem.dtype)
        got = number_formats.decode(stored[2], problem.dtype)
        assert np.array_equal(got, number_formats.decode(wanted, problem.dtype))
    assert work.compare(problem, out, out).wrong == 0
    assert all(work.find(problem, buffer, None, 0).beside_output == 0 for buffer in buffers)
    damaged = bytearray(stored[2].tobytes())
    at = counts[2] // 2
    damaged[(at + 1) * storage.itemsize - 1] ^= 0x15
    driver.copy_in(out, bytes(damaged))
    spare = Buffer(driver, buffers[2].size_bytes)
    driver.copy_in(spare.address, stored[2].tobytes())
    verdict = work.compare(problem, out, spare.address)
    assert (verdict.wrong, verdict.first) == (1, at)
    for buffer in (*buffers, spare):
        buffer.close()


def open_driver(name: str):  # type: ignore[no-untyped-def]
    if name == "sm_90":
        from tile_oracle.device.runtime.cuda import open_cuda

        return open_cuda()
    from tile_oracle.device.runtime.hip import open_hip

    return open_hip()


def main(arch: str, folder: Path) -> None:
    """Builds the kernels into a folder for a machine without a compiler."""
    with evil.evil_gpu_builder(folder.with_name(folder.name + "-work"), arch) as builder:
        report = prebuild(builder, all_kernels(), folder)
    print(f"{report.kernels_in_folder} kernels in {folder}, {len(report.failed)} failed")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
