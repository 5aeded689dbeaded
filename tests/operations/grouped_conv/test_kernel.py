"""Names and fields of kernels convert both ways, without loss."""

from __future__ import annotations

import csv
import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measured_tables import gfx950_file
from tile_oracle.arch import load_arch
from tile_oracle.compiling.source import gpu_code_refusal
from tile_oracle.errors import KernelError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_TILES, GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem


def published() -> GroupedConvKernel:
    return parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave_dsb_si")


def test_rows_of_tables_are_read_with_floats() -> None:
    kernel = published()
    floats = kernel.as_row() | {"tile_m": 64.0, "split_image": np.float64(1.0), "pad_k": np.True_}
    assert GroupedConvKernel.from_row(floats) == kernel
    assert type(GroupedConvKernel.from_row(floats).pad_k) is bool


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("tile_m", 64.5),
        ("tile_m", float("nan")),
        ("tile_m", "64x"),
        ("tile_m", None),
        ("tile_m", 10**30),
        ("split_image", "yes"),
        ("split_image", 2),
        ("split_image", float("nan")),
        ("split_image", None),
        ("split_image", pd.NA),
        ("dtype", 16),
        ("pipeline", "compv3\n"),
    ],
)
def test_a_cell_of_another_kind_is_an_error_that_names_its_column(column: str, value: object) -> None:
    with pytest.raises(KernelError, match=column) as caught:
        GroupedConvKernel.from_row(published().as_row() | {column: value})
    assert "\n" not in str(caught.value)


def test_a_missing_column_is_named_unless_it_has_a_default() -> None:
    row = published().as_row()
    del row["scheduler"], row["warp_tile_n"]
    with pytest.raises(KernelError, match="warp_tile_n"):
        GroupedConvKernel.from_row(row)
    assert GroupedConvKernel.from_row(row | {"warp_tile_n": 16}) == published()


# ---- published names ----------------------------------------------------------------------------

_SUFFIXES = ("", "_dsb", "_si", "_dsb_si")
PUBLISHED_VARIANTS = (
    [f"{p}_{mode}{s}" for p in ("basic_v1", "mem") for mode in ("intrawave", "interwave") for s in _SUFFIXES]
    + [f"{p}_intrawave{s}" for p in ("compv3", "compv5", "compv6") for s in _SUFFIXES]
    + ["compv4_intrawave_dsb", "compv4_intrawave_dsb_si"]
)


def test_published_names_equal_ours() -> None:
    assert len(PUBLISHED_VARIANTS) == 30
    for direction, tile, variant in itertools.product(
        ("forward", "bwd_data", "bwd_weight"), PUBLISHED_TILES, PUBLISHED_VARIANTS
    ):
        name = f"grouped_conv_{direction}_bf16_3d_{tile[0]}x{tile[1]}x{tile[2]}_{variant}"
        kernel = parse_kernel_name(name)
        assert kernel.name == name
        assert (kernel.waves, kernel.warp_tile) == PUBLISHED_TILES[tile]
        assert (kernel.vectors, kernel.epilogue, kernel.ndim) == ((4, 8, 8), "cshuffle", 3)
        assert kernel.tile_m == kernel.wave_m * kernel.warp_tile_m


def test_a_name_without_wave_mode_means_intrawave() -> None:
    old = parse_kernel_name("grouped_conv_bwd_data_bf16_2d_32x128x64_compv3")
    assert old.name == "grouped_conv_bwd_data_bf16_2d_32x128x64_compv3_intrawave"
    assert parse_kernel_name("grouped_conv_forward_fp16_2d_32x128x64_mem_dsb_si").split_image


@pytest.mark.parametrize("pipeline", ["compv4", "comp_async"])
def test_a_name_without_wave_mode_omits_the_buffering(pipeline: str) -> None:
    stem = f"grouped_conv_forward_bf16_2d_64x64x64_{pipeline}"
    assert parse_kernel_name(stem).name == f"{stem}_intrawave_dsb"
    assert not parse_kernel_name(f"{stem}_intrawave").double_smem_buffer


def test_every_publicly_measured_kernel_name_is_read() -> None:
    folder = gfx950_file("benchmark_forward_bf16_gfx950_dev.csv").parent
    names = set()
    for path in sorted(folder.glob("*forward_bf16*.csv")):
        with path.open(newline="") as file:
            names |= {row["kernel"] for row in csv.DictReader(file)}
    assert len(names) == 30
    assert len({parse_kernel_name(name) for name in names}) == 30


# ---- errors -------------------------------------------------------------------------------------

_GOOD = "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        _GOOD + " ",
        _GOOD + "\n",
        " " + _GOOD,
        _GOOD.upper(),
        _GOOD + "_si_dsb",
        _GOOD + "_dsb_dsb",
        _GOOD + "_v4x8",
        _GOOD + "_pad11",
        _GOOD + "_../../etc/passwd",
        _GOOD + "\0",
        _GOOD.replace("64x64x64", "64x64"),
        _GOOD.replace("64x64x64", "064x64x64"),
        _GOOD.replace("64x64x64", "0x64x64"),
        _GOOD.replace("64x64x64", "-1x64x64"),
        _GOOD.replace("64x64x64", "99999999x64x64"),
        _GOOD.replace("64x64x64", "٦٤x64x64"),  # digits, but not ASCII
        _GOOD.replace("64x64x64", "2097152x64x64"),
        _GOOD.replace("64x64x64", "48x64x64"),  # needs its waves and warp tile
        _GOOD.replace("compv3", "compv3x"),
        _GOOD.replace("compv3", "compv"),
        _GOOD.replace("compv3", "preshuffle"),
        _GOOD.replace("bf16", "bf17"),
        _GOOD.replace("2d", "4d"),
        _GOOD.replace("forward", "backward"),
        _GOOD.replace("grouped_conv", "gemm"),
        _GOOD + "_2s",  # two_stage is for bwd_weight
        "x" * 1_000_000,
        _GOOD + "_dsb" * 200_000,
        "grouped_conv_forward_" + "a" * 1_000_000 + "_2d_64x64x64_mem",
        "grouped_conv_forward_bf16_2d_" + "1x" * 500_000,
    ],
    ids=lambda name: repr(name[-40:]),
)
def test_an_invalid_name_gives_one_short_line(name: str) -> None:
    with pytest.raises(KernelError) as caught:
        parse_kernel_name(name)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400


@given(st.text(alphabet="grouped_conv_forward_bf16_2d_x0123456789_mem_si ", max_size=120))
def test_any_text_is_a_kernel_or_a_kernel_error(text: str) -> None:
    try:
        kernel = parse_kernel_name(text)
    except KernelError:
        return
    assert parse_kernel_name(kernel.name) == kernel


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"direction": "backward"}, "direction 'backward' is not one of forward, bwd_data, bwd_weight"),
        ({"dtype": "fp64"}, "dtype 'fp64'"),
        ({"ndim": 4}, "ndim 4 is not one of 2, 3"),
        ({"ndim": 2.0}, "ndim = 2.0"),
        ({"scheduler": "default"}, "scheduler 'default'"),
        ({"epilogue": ""}, "epilogue ''"),
        ({"pipeline": "compv333"}, "pipeline 'compv333'"),
        ({"pipeline": None}, "pipeline None"),
        ({"tile_m": 0}, "tile_m = 0"),
        ({"tile_m": True}, "tile_m = True"),
        ({"wave_k": 1.0}, "wave_k = 1.0"),
        ({"num_groups_to_merge": (1 << 20) + 1}, "num_groups_to_merge = 1048577"),
        ({"pad_m": 1}, "pad_m = 1 is not True or False"),
        ({"two_stage": True}, "two_stage is for bwd_weight, not forward"),
    ],
)
def test_invalid_fields_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(KernelError, match="^" + message.replace("(", r"\(")):
        replace(published(), **changed)


@pytest.mark.parametrize(
    ("special", "token", "fits", "fits_not"),
    [
        ("Filter1x1Pad0", "f1x1p0", {"stride_h": 2}, {"pad_w": 1}),
        ("Filter1x1Stride1Pad0", "f1x1s1p0", {}, {"stride_h": 2}),
        ("Filter3x3", "f3x3", {"Y": 3, "X": 3, "C": 8, "pad_h": 1}, {"Y": 3, "X": 3}),
    ],
)
def test_a_specialization_is_in_the_name_and_says_which_problems_a_kernel_is_for(
    special: str, token: str, fits: dict[str, int], fits_not: dict[str, int]
) -> None:
    kernel = replace(published(), specialization=special)
    assert kernel.name.endswith(f"_dsb_si_{token}")
    assert parse_kernel_name(kernel.name) == kernel
    plain = GroupedConvProblem("forward", "bf16", 2, 2, 64, 64, 8, 9, 9, 1, 1)
    arch = load_arch("gfx950")
    assert arch.problem_refusal(kernel, replace(plain, **fits)) is None
    reason = arch.problem_refusal(kernel, replace(plain, **fits_not))
    assert str(reason).startswith(f"specialization: {special} is for filters of extent")
    assert arch.problem_refusal(published(), replace(plain, **fits_not)) is None
    for name, refusal in (("cpu", load_arch("cpu").refusals(kernel)), ("kernels/gpu", gpu_refusals(kernel))):
        assert any(name in one and "for all filters" in one for one in refusal)


def gpu_refusals(kernel: GroupedConvKernel) -> list[str]:
    return [reason for reason in [gpu_code_refusal(kernel, "gfx950")] if reason is not None]
