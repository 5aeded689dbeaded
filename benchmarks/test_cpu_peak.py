"""How much of one core's fp32 multiply-add peak the CPU kernels reach on a large 3x3 convolution.

The peak is measured in the same run, right before each kernel, by a loop whose sums never leave their
registers. bf16 can exceed it where the machine multiplies pairs of bf16 in one instruction.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.toolchain import INCLUDE_FOLDER
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES, GroupedConvProblem

PEAK_SOURCE = Path(__file__).with_name("cpu_peak.cpp")
LARGE = "n1-c256-k256-i56x56-f3x3-p1"
POOL = (
    ("mem", (96, 128, 128), (12, 32)),
    ("compv3", (96, 128, 128), (12, 32)),
    ("compv4", (48, 64, 64), (6, 64)),
)
LEAST_OF_PEAK = 0.30
SAMPLES = 15
PEAK_ROUNDS = 2_000_000  # as long as one call of a kernel, so that both meet the same disturbances


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    with Builder(build_dir=tmp_path_factory.mktemp("cache")) as builder:
        yield builder


@pytest.fixture(scope="module")
def peak_gflops(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], float]:
    """Measures the peak of this core, with the compiler and the flags of the kernels: GFLOPS."""
    work = tmp_path_factory.mktemp("peak")
    assert builder.toolchain is not None
    builder.toolchain.prepare(work)
    shutil.copytree(data_folder("kernels") / "cpu", work / INCLUDE_FOLDER)
    shutil.copy(PEAK_SOURCE, work)
    for command in builder.toolchain.commands(PEAK_SOURCE.name, "peak.so", builder.flags):
        subprocess.run(command, cwd=work, check=True)
    library = ctypes.CDLL(str(work / "peak.so"))
    library.fma_rounds.restype = ctypes.c_int64

    rates: list[float] = []  # of the whole run: what disturbs a measurement can only lower it

    def measure() -> float:
        sink, nanoseconds = ctypes.c_float(), ctypes.c_uint64()
        for _ in range(SAMPLES):
            flops = library.fma_rounds(
                ctypes.c_int64(PEAK_ROUNDS),
                ctypes.c_float(0.5),
                ctypes.byref(sink),
                ctypes.byref(nanoseconds),
            )
            rates.append(flops / nanoseconds.value)
        return max(rates)

    return measure


class Args(ctypes.Structure):
    """to_conv_args of kernels/cpu/abi.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("in0", "in1", "out", "workspace")),
        *((name, ctypes.c_int64) for name in ("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X")),
        *((name, ctypes.c_int64) for name in ("Do", "Ho", "Wo")),
        *((f"{name}_{axis}", ctypes.c_int64) for name in ("stride", "pad", "dilation") for axis in "dhw"),
    ]


@dataclass(frozen=True)
class Launch:
    """A kernel with a problem's operands: everything that a call needs."""

    kernel: GroupedConvKernel
    library: ctypes.CDLL
    args: Args
    memory: tuple[np.ndarray, ...]

    def run(self) -> None:
        assert self.library.to_launch(ctypes.byref(self.args)) == 0

    def fastest_ms(self) -> float:
        self.run()
        return min(timeit.repeat(self.run, repeat=SAMPLES, number=1)) * 1e3


def prepare(builder: Builder, problem: GroupedConvProblem, kernel: GroupedConvKernel) -> Launch:
    result = builder.need(kernel)
    assert result.binary is not None, result.log
    library = ctypes.CDLL(str(result.binary.path))
    library.to_workspace_bytes.restype = ctypes.c_int64
    args = Args(**{name: getattr(problem, name) for name, *_ in Args._fields_[4:]})
    rng = np.random.default_rng(0)
    # Bits 16 to 31 of fp32 are bf16; a random half of that order is a plain number in fp16 as well.
    dtype = np.float32 if problem.dtype == "fp32" else np.float16
    operands = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in problem.operand_shapes]
    if problem.dtype == "bf16":
        operands = [(operand.view(np.uint32) >> 16).astype(np.uint16) for operand in operands]
    else:
        operands = [operand.astype(dtype) for operand in operands]
    scratch = np.zeros(library.to_workspace_bytes(ctypes.byref(args)) + 64, np.uint8)
    args.in0, args.in1, args.out = (operand.ctypes.data for operand in operands)
    args.workspace = -(-scratch.ctypes.data // 64) * 64
    return Launch(kernel, library, args, (*operands, scratch))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_large_3x3_against_the_peak_of_the_core(
    direction: str,
    dtype: str,
    builder: Builder,
    peak_gflops: Callable[[], float],
    benchmark: BenchmarkFixture,
) -> None:
    problem = GroupedConvProblem.from_id(f"{direction}-{dtype}-{LARGE}")
    kernels = [
        GroupedConvKernel(
            direction,
            dtype,
            2,
            *tile,
            *(1, 1, 1),
            *(*micro, 1),
            pipeline=pipeline,
            double_smem_buffer=pipeline == "compv4",
        )
        for pipeline, tile, micro in POOL
    ]
    launches = [prepare(builder, problem, kernel) for kernel in kernels]
    peak = peak_gflops()
    latency_ms, best = min(((launch.fastest_ms(), launch) for launch in launches), key=lambda pair: pair[0])
    benchmark.pedantic(best.run, rounds=SAMPLES, warmup_rounds=1)
    gflops = problem.tflops(latency_ms) * 1e3
    benchmark.extra_info.update(
        problem=problem.id,
        kernel=best.kernel.name,
        gflops=round(gflops, 1),
        peak_gflops=round(peak, 1),
        of_peak=round(gflops / peak, 3),
    )
    print(
        f"{problem.id}: {gflops:.0f} of {peak:.0f} GFLOPS ({gflops / peak:.0%}) with {best.kernel.short_name}"
    )
    assert gflops >= LEAST_OF_PEAK * peak
