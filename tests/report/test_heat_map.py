"""Groups of kernels near the oracle, by kind of problem."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report.records_factory import frame, record, some_kernels
from tile_oracle.kernel.named import NamedKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.report.data import RunInfo, analyse
from tile_oracle.report.heat_map import ALL, group_of, heat_map
from tile_oracle.report.html import report_html


def a_problem(**more: Any) -> GroupedConvProblem:
    sizes = {"N": 1, "C": 64, "K": 64, "G": 1, "Hi": 14, "Wi": 14, "Y": 1, "X": 1}
    return GroupedConvProblem(direction="forward", dtype="fp32", ndim=2, **(sizes | more))


def test_a_group_is_near_where_its_best_kernel_has_95_percent_of_the_oracle() -> None:
    pointwise, wide = a_problem(), a_problem(Y=3, X=3, pad_h=1, pad_w=1)
    kernels = some_kernels(2, pointwise)
    rows = [
        *(record(pointwise, kernel, speed) for kernel, speed in zip(kernels, (1.0, 0.96), strict=True)),
        *(record(wide, kernel, speed) for kernel, speed in zip(kernels, (1.0, 0.94), strict=True)),
    ]
    data = analyse(frame(rows), [pointwise, wide], None, run=RunInfo("a-run"))
    found = heat_map(data.final, data.selection)
    first, second = (group_of(kernel.name) for kernel in kernels)
    assert found.kinds == {ALL: 2, "1x1": 1, "3x3": 1}
    assert dict(found.groups) == {
        first: {ALL: 1.0, "1x1": 1.0, "3x3": 1.0},
        second: {ALL: 0.5, "1x1": 1.0, "3x3": 0.0},
    }
    assert "Groups of kernels near the oracle" in report_html(data)


def test_kernels_of_a_single_group_are_told_apart() -> None:
    """All configurations of one function: a row of the function would be 100 % everywhere."""
    problem = a_problem()
    fast, slow = (NamedKernel(problem.kind, "mine", "conv", (("pixels", pixels),)) for pixels in (1, 4))
    rows = [record(problem, kernel, speed) for kernel, speed in ((fast, 1.0), (slow, 0.5))]
    data = analyse(frame(rows), [problem], None, run=RunInfo("a-run"))
    found = heat_map(data.final, data.selection)
    assert found.of_kernels
    assert set(found.groups) == {"mine.conv.pixels=1"}
    assert "on which a kernel is within 5 % of the oracle" in report_html(data)


@pytest.mark.parametrize(
    ("kernel", "group"),
    [
        ("grouped_conv_forward_bf16_2d_64x64x64_compv4_intrawave_dsb", "compv4 64x64x64"),
        (
            "gemm_bf16_rcr_mem_cshuffle_intrawave_False_False_False_True_16x64x64_1x4x1_16x16x32",
            "mem 16x64x64",
        ),
        ("gemm_bf16_rcr_triton.matmul.BLOCK_K=64.num_warps=8", "triton.matmul"),
        ("attention_bf16_d128_causal1_keys32", "keys32"),
        ("what is this", "what is this"),
    ],
)
def test_groups_of_every_kind_of_kernel(kernel: str, group: str) -> None:
    assert group_of(kernel) == group
