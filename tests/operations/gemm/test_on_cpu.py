"""GEMM kernels on the target cpu: compiled, run and checked bit for bit, and a whole session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integer_operands import integer_operands
from tests.pytest_project import SHORTLY, Project
from tests.samples import sampled
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.source import source_for
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.device.reference import exact_output
from tile_oracle.operations.gemm.kernel import GemmKernel, parse_gemm_name
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.grouped_conv.cpu_source import CPU_PIPELINES
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

BASE = parse_gemm_name("gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_False_16x16x64_1x1x1_4x16x1")
SIZES = [(1, 64, 64), (33, 1, 70), (20, 30, 1), (1, 1, 1), (17, 47, 131), (64, 48, 128)]
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
DTYPE_OF = dict(zip(CPU_PIPELINES, ("bf16", "fp32", "fp16", "bf16"), strict=True))


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    with Builder(build_dir=tmp_path_factory.mktemp("cache")) as builder:
        yield builder


@pytest.mark.parametrize(("layout", "pipeline"), sampled(product(LAYOUTS, CPU_PIPELINES), every=5))
def test_products_are_exact_in_every_layout_and_pipeline(
    layout: str, pipeline: str, builder: Builder, device: CpuDevice
) -> None:
    kernel = replace(BASE, layout=layout, pipeline=pipeline, dtype=DTYPE_OF[pipeline])
    built = builder.need(kernel)
    assert built.binary is not None, built.log
    for m, n, k in SIZES:
        problem = GemmProblem(kernel.dtype, layout, m, n, k)
        device.load(problem, 3)
        result = device.check(built.binary.path)
        assert (result.status, result.detail, result.points) == ("ok", "", m * n), problem.id
        assert (device.sample(built.binary.path, 2) > 0).all()


def test_a_kernel_of_another_layout_is_caught(builder: Builder, device: CpuDevice) -> None:
    binary = builder.need(replace(BASE, layout="rrr")).binary
    assert binary is not None
    device.load(GemmProblem("bf16", "crr", 24, 24, 24), 3)
    assert device.check(binary.path).status == "wrong"


@pytest.mark.parametrize(
    ("layout", "direction"), [("rcr", "forward"), ("rrr", "bwd_data"), ("crr", "bwd_weight")]
)
def test_a_gemm_has_the_source_of_its_1x1_convolution_and_shares_its_binary(
    layout: str, direction: str
) -> None:
    conv = GroupedConvKernel(direction, "bf16", 2, *(16, 16, 64), *(1, 1, 1), *(4, 16, 1))
    assert source_for(replace(BASE, layout=layout), "cpu") == source_for(conv, "cpu")


def test_ccr_is_the_data_gradient_with_its_result_transposed() -> None:
    conv = GroupedConvKernel("bwd_data", "bf16", 2, *(16, 16, 64), *(1, 1, 1), *(4, 16, 1))
    lines = source_for(replace(BASE, layout="ccr"), "cpu").splitlines()
    assert [line for line in lines if line != "#define TO_TRANSPOSED 1"] == source_for(
        conv, "cpu"
    ).splitlines()
    assert "#define TO_TRANSPOSED 1" in lines


# ---- the reference -------------------------------------------------------------------------------


@given(st.sampled_from(GEMM_LAYOUTS), st.tuples(*[st.integers(1, 12)] * 3), st.integers(0, 1000))
def test_the_reference_is_the_sum_of_products(layout: str, sizes: tuple[int, int, int], seed: int) -> None:
    problem = GemmProblem("fp32", layout, *sizes)
    first, second = integer_operands(problem, seed)
    m, n, k = sizes
    out = np.zeros((m, n))
    for i in range(m):
        for j in range(n):
            for d in range(k):
                a = first[i, d] if layout[0] == "r" else first[d, i]
                b = second[d, j] if layout[1] == "r" else second[j, d]
                out[i, j] += float(a) * float(b)
    assert np.array_equal(exact_output(problem, first, second), out)


# ---- a session -----------------------------------------------------------------------------------

SHAPES = "layout,M,N,K\nrcr,1,64,64\nrrr,24,40,56\ncrr,17,1,33\n"
QUICK = ("--kernel-set", "tiny", *SHORTLY, "--kernel-filter", "tile_m == 16", "--allow=no-baseline")


@pytest.mark.slow
def test_problems_and_layouts_without_kernels_are_reported_in_one_line(project: Project) -> None:
    for text, message in (
        ("dtype,layout,M,N,K\nfp8,ccr,8,8,8\n", "has no kernel for gemm fp8 ccr on cpu"),
        ("dtype,M,N,K\nfp8,8,8,8\n", "has no kernel for gemm fp8 rcr on cpu"),
    ):
        project.write("mine.csv", text)
        done = project.pytest("--problem-set", "mine.csv", *QUICK)
        assert done.status == 4
        (error,) = (line for line in done.lines if line.startswith("ERROR: "))
        assert message in error
    project.write("mine.csv", "M,N,K\n8,8,8\n")
    done = project.pytest("--problem-set", "mine.csv,forward_smoke", *QUICK)
    assert done.status == 4
    assert "a run records one operation" in done.output


@pytest.mark.slow
def test_a_split_depth_is_unsupported_not_wrong(project: Project) -> None:
    project.write("mine.csv", "M,N,K,split_k\n8,8,64,2\n8,8,64,1\n")
    done = project.pytest("--problem-set", "mine.csv", *QUICK, "--model", "none")
    records = project.records()
    records = records[records["round"] == 0]
    split = records[records["split_k"] == 2]
    assert set(split["status"]) == {"unsupported"}
    assert split["detail"].str.contains("split_k must|split_k = 2 must be 1").all()
    assert set(records[records["split_k"] == 1]["status"]) == {"ok"}
    assert isinstance(GemmKernel.from_row(split.iloc[0].to_dict()), GemmKernel)
    assert done.status in (0, 1)
