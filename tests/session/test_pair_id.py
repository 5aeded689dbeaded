"""Ids of tests and the pairs in them."""

from __future__ import annotations

import pytest

from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.pool import gemm_pool, kernel_pool
from tile_oracle.problem_set import list_problem_sets, load_problem_set
from tile_oracle.session.pair_id import pair_id, pair_of

KERNELS = (
    *kernel_pool("forward", "bf16", 2, arch="gfx950", rules="default"),
    *kernel_pool("bwd_weight", "fp16", 3, arch="gfx950", rules="full-tests"),
)
GEMM_KERNELS = gemm_pool("bf16", "rcr", arch="gfx950", rules="default")


@pytest.mark.parametrize("name", list_problem_sets())
def test_problems_are_parsed_from_test_ids(name: str) -> None:
    for place, problem in enumerate(load_problem_set(name).problems):
        kernels = GEMM_KERNELS if problem.op == "gemm" else KERNELS
        kernel = kernels[place % len(kernels)]
        assert pair_of(f"tile_oracle::test_kernel[{pair_id(problem, kernel)}]") == (
            problem.id,
            kernel.short_name,
        )
        assert pair_of(f"test_own.py::TestIt::test_it[{problem.id}]") == (problem.id, None)


def test_kernels_are_parsed_from_test_ids() -> None:
    problem = GroupedConvProblem.from_id("bwd_data-fp16-n2-g8-c64-k64-i7x9x11-f1x3x3-s1x2x2-p0x1x1-d1x2x2")
    assert len(KERNELS) > 300
    for kernel in KERNELS:
        assert isinstance(kernel, GroupedConvKernel)
        assert pair_of(f"t.py::t[{pair_id(problem, kernel)}]") == (problem.id, kernel.short_name)


def test_gemm_kernels_are_parsed_from_test_ids() -> None:
    problem = GemmProblem("bf16", "rcr", 1, 2, 3, 2)
    for kernel in GEMM_KERNELS:
        for nodeid in (f"t.py::t[{pair_id(problem, kernel)}]", f"t.py::t[a-{pair_id(problem, kernel)}-b]"):
            assert pair_of(nodeid) == (problem.id, kernel.short_name)


def test_a_test_id_may_have_other_parameters() -> None:
    pair = "forward-fp32-n1-c8-k8-i6x6-f3x3-p1-16x16x64_compv3_intrawave_w1x1x1_wt4x16x1"
    expected = ("forward-fp32-n1-c8-k8-i6x6-f3x3-p1", "16x16x64_compv3_intrawave_w1x1x1_wt4x16x1")
    for nodeid in (f"t.py::t[{pair}]", f"t.py::t[fast-{pair}]", f"t.py::t[{pair}-1]", f"t.py::t[a-{pair}-b]"):
        assert pair_of(nodeid) == expected


@pytest.mark.parametrize(
    "nodeid", ["t.py::t", "t.py::t[forward]", "t.py::forward-bf16-n1", "t.py::t[64x64x64_mem]"]
)
def test_other_test_ids_have_no_pair(nodeid: str) -> None:
    assert pair_of(nodeid) == (None, None)
