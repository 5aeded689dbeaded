"""Names and fields of GEMM kernels convert both ways, without loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tile_oracle.errors import KernelError
from tile_oracle.kernel import kernel_from_row, parse_kernel_name
from tile_oracle.operation import operation_names
from tile_oracle.operations.gemm.kernel import GemmKernel, parse_gemm_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

PUBLISHED = "gemm_fp16_rcr_compv3_cshuffle_intrawave_False_True_False_False_256x128x64_2x2x1_32x32x16"


def test_a_published_name_gives_its_fields() -> None:
    kernel = parse_kernel_name(PUBLISHED)
    assert isinstance(kernel, GemmKernel)
    assert (kernel.tile, kernel.waves, kernel.warp_tile) == ((256, 128, 64), (2, 2, 1), (32, 32, 16))
    assert (kernel.paddings, kernel.persistent) == ((False, True, False), False)
    assert kernel.name == PUBLISHED
    assert kernel.short_name == PUBLISHED.removeprefix("gemm_fp16_rcr_")
    assert parse_kernel_name(PUBLISHED.replace("gemm_", "gemm_universal_")) == kernel


def test_preshuffle_follows_from_the_pipeline() -> None:
    name = PUBLISHED.replace("compv3", "preshufflev2").replace("gemm_", "gemm_preshuffle_")
    kernel = parse_gemm_name(name)
    assert kernel.preshuffle
    assert not parse_gemm_name(PUBLISHED).preshuffle
    assert kernel.name == name.replace("gemm_preshuffle_", "gemm_")


@pytest.mark.parametrize(
    "name",
    [
        PUBLISHED + "_x",
        PUBLISHED.replace("False", "0"),
        PUBLISHED.replace("256x128x64", "256x128"),
        PUBLISHED.replace("rcr", "rrc"),
        PUBLISHED.replace("fp16", "fp12"),
        PUBLISHED.replace("compv3", "turbo"),
        "gemm_" + "x" * 5000,
        "gemm_\n",
        "conv_fp16",
        "",
    ],
)
def test_an_invalid_name_gives_one_short_line(name: str) -> None:
    with pytest.raises(KernelError) as caught:
        parse_kernel_name(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tile_m": 0}, "tile_m = 0 is not an integer"),
        ({"tile_m": True}, "tile_m = True is not an integer"),
        ({"pad_k": 1}, "pad_k = 1 is not True or False"),
        ({"pipeline": "Mem"}, "pipeline 'Mem' is not mem"),
        ({"scheduler": "any"}, "scheduler 'any' is not one of"),
        ({"layout": "rrc"}, "layout 'rrc' is not one of"),
    ],
)
def test_invalid_fields_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        replace(parse_gemm_name(PUBLISHED), **change)


def test_a_row_without_a_column_or_operation_is_refused() -> None:
    row = parse_gemm_name(PUBLISHED).as_row()
    with pytest.raises(KernelError, match="gemm: the column warp_m is missing"):
        GemmKernel.from_row({k: v for k, v in row.items() if k != "warp_m"})
    with pytest.raises(KernelError, match=f"operation 'sort' is not one of {', '.join(operation_names())}"):
        kernel_from_row(row, "sort")


def test_a_kernel_matches_problems_of_its_data_type_and_layout_only() -> None:
    kernel = parse_gemm_name(PUBLISHED)
    assert kernel.matches(GemmProblem("fp16", "rcr", 1, 2, 3))
    assert not kernel.matches(GemmProblem("bf16", "rcr", 1, 2, 3))
    assert not kernel.matches(GemmProblem("fp16", "rrr", 1, 2, 3))
    conv = parse_kernel_name("grouped_conv_forward_fp16_2d_64x64x64_compv3_intrawave")
    assert isinstance(conv, GroupedConvKernel)
    assert not conv.matches(GemmProblem("fp16", "rcr", 1, 2, 3))
