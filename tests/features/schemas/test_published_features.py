"""The published schemas, compared with values computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.errors import ModelError
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named, schema_with, work_of
from tile_oracle.kernel import NamedKernel, parse_kernel_name
from tile_oracle.model.roofline import RooflineModel
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.kernel import PUBLISHED_TILES
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

HARDWARE = {
    "hw_num_cus": 256, "hw_simds_per_cu": 4, "hw_total_simds": 1024, "hw_shader_engines": 32,
    "hw_max_clock_mhz": 2400, "hw_max_waves_per_cu": 32, "hw_wavefront_size": 64, "hw_lds_capacity": 65536,
    "hw_l1_cache_kb": 32, "hw_l2_cache_kb": 4096, "hw_l3_cache_kb": 262144, "hw_num_xcd": 8,
}  # fmt: skip


def features_of(
    problem: GroupedConvProblem, kernel: str, schema: str = "grouped_conv_97"
) -> dict[str, float]:
    chosen = schema_named(schema)
    row = chosen.compute(pair_columns([problem], [parse_kernel_name(kernel)]), hardware_features("gfx950"))[0]
    return dict(zip(chosen.names, row.tolist(), strict=True))


def test_a_grouped_strided_problem_column_by_column() -> None:
    problem = GroupedConvProblem(
        "forward", "bf16", 2, N=2, C=64, K=96, G=4, Hi=28, Wi=14, Y=3, X=3,
        stride_h=2, stride_w=1, pad_h=1, pad_w=1,
    )  # fmt: skip
    found = features_of(problem, "grouped_conv_forward_bf16_2d_32x128x64_compv4_intrawave_dsb_si")
    # Ho = (28+2-3)//2+1 = 14, Wo = 14. The name 32x128x64 is read as b = 32, m = 128, n = 64.
    out, cg, filter_ = 14 * 14, 16, 9
    bytes_ = 2 * (2 * 64 * 28 * 14 + 96 * cg * filter_ + 2 * 96 * out)
    gemm_m, gemm_n, gemm_k = 2 * out, 96, cg * filter_
    expected = {
        "N": 2, "C": 64, "K": 96, "G": 4, "Hi": 28, "Wi": 14, "Y": 3, "X": 3,
        "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 1, "Ho": 14, "Wo": 14,
        "log2_N": 1, "log2_C": 6, "log2_K": np.log2(96), "log2_G": 2,
        "log2_Hi": np.log2(28), "log2_Wi": np.log2(14),
        "log2_spatial": np.log2(392), "log2_filter": np.log2(9), "log2_output": np.log2(196),
        "arithmetic_intensity": 2 * 2 * 96 * out * cg * filter_ / bytes_,
        "filter_area": 9, "is_1x1_conv": 0, "is_3x3_conv": 1, "channels_per_group": 16,
        "aspect_ratio_hw": 2, "aspect_ratio_filter": 1,
        "is_3d": 0, "Di": 1, "Z": 1, "Do": 1, "stride_d": 1, "pad_d": 0, "dilation_h": 1, "dilation_w": 1,
        "log2_channels_per_group": 4, "log2_output_channels_per_group": np.log2(24),
        "is_depthwise": 0, "group_density": 4 / 64, "is_small_group": 0,
        "channels_product_per_group": 16 * 24,
        "batch_group_product": 8, "is_small_batch_grouped": 1,
        "block_size": 32, "gemm_m_per_block": 128, "gemm_n_per_block": 64, "pipeline": 1, "num_warps": 8,
        "tile_volume": 128 * 64 * 32, "tile_mn": 128 * 64,
        "lds_usage_estimate": (128 * 32 + 64 * 32) * 2, "lds_usage_ratio": (128 * 32 + 64 * 32) * 2 / 32768,
        "block_tile_ratio_m": 4, "block_tile_ratio_n": 2, "block_efficiency": 0.5,
        "is_compv3": 0, "is_compv4": 1, "is_compv5": 0,
        "is_intrawave": 1, "has_dsb": 1, "has_si": 1, "is_basic": 0, "is_compv6": 0, "is_mem": 0,
        "gemm_m_output": gemm_m, "gemm_n_output": gemm_n, "gemm_k_output": gemm_k,
        "num_tiles_m": 4, "num_tiles_n": 2, "num_tiles_k": 5, "total_output_tiles": 8,
        "tile_eff_m": (392 % 128) / 128, "tile_eff_n": 0.5, "tile_eff_k": (144 % 32) / 32,
        "overall_tile_efficiency": 8 / 128 * 0.5 * 16 / 32, "cu_utilization": 8 / 256,
        "ratio_gemm_m_to_tile_m": 392 / 128, "ratio_gemm_n_to_tile_n": 1.5, "ratio_gemm_k_to_tile_k": 4.5,
        "problem_smaller_than_tile_m": 0, "problem_smaller_than_tile_n": 0, "problem_smaller_than_tile_k": 0,
        **HARDWARE,
    }  # fmt: skip
    assert list(found) == list(expected)
    assert found == pytest.approx(expected)


def test_the_schema_of_ck_dsl_reads_the_tile_as_it_is_meant() -> None:
    problem = GroupedConvProblem("forward", "fp16", 2, N=1, C=64, K=96, G=1, Hi=14, Wi=14, Y=1, X=1)
    name = "grouped_conv_forward_fp16_2d_32x128x64_mem"
    found = features_of(problem, name, "grouped_conv_113")
    kernel = parse_kernel_name(name)
    threads = 64 * math.prod(kernel.waves)
    gemm_m, gemm_n, gemm_k = 14 * 14, 96, 64  # 7 x 1 output tiles of 32 x 128, one step of 64
    expected = {
        "block_size": threads, "gemm_m_per_block": 32, "gemm_n_per_block": 128, "gemm_k_per_block": 64,
        "num_warps": threads / 4, "tile_volume": 32 * 128 * 64, "tile_mn": 32 * 128,
        "lds_usage_estimate": (32 + 128) * 64 * 2, "lds_usage_ratio": (32 + 128) * 64 * 2 / 65536,
        "block_tile_ratio_m": 32 / threads, "block_efficiency": 32 / 128, "K_per_C": 1.5,
        "num_tiles_m": 7, "num_tiles_n": 1, "num_tiles_k": 1, "total_output_tiles": 7,
        "tile_eff_m": 4 / 32, "tile_eff_n": 96 / 128, "tile_eff_k": 1.0, "cu_utilization": 7 / 256,
        "ratio_gemm_k_to_tile_k": 1.0, "problem_smaller_than_tile_k": 0, "problem_smaller_than_tile_n": 1,
        "log_gemm_m_n_ratio": math.log(gemm_m / gemm_n), "log_total_output_tiles": math.log(7),
        "log_num_tiles_m": math.log(7), "is_mem_x_log_num_tiles_m": math.log(7),
        "log_gemm_m_raw": math.log(gemm_m), "gemm_m_lt_num_cus": 1, "gemm_k_output": gemm_k,
        "log_gemm_m_over_num_cus": math.log(gemm_m / 256), "is_mem_x_log_gemm_m_raw": math.log(gemm_m),
        "log_cu_fill": math.log(7 / 256), "k_tiles_over_mn_tiles": 1 / 7,
        "waves_per_max_occ": 7 / (256 * 32), "wave_quant_efficiency": 7 / 256,
        "log_k_per_active_cu": math.log(1 / 7), "is_subwave": 1, "block_tile_ratio_n": 128 / threads,
        "ratio_gemm_m_to_tile_m": 196 / 32, "ratio_gemm_n_to_tile_n": 96 / 128,
        "overall_tile_efficiency": 4 / 32 * 96 / 128, "problem_smaller_than_tile_m": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    older = features_of(problem, name)
    same = set(older) - set(expected)
    assert {name: found[name] for name in same} == {name: older[name] for name in same}
    names = schema_named("grouped_conv_113").names
    assert len(names) == 113
    places = [names.index(name) for name in ("K_per_C", "gemm_k_per_block", "is_subwave", "hw_num_xcd")]
    assert places == [46, 50, 100, 112]
    assert [name for name in names if name in older] == list(schema_named("grouped_conv_97").names)


def test_a_depthwise_dilated_3d_problem() -> None:
    problem = GroupedConvProblem(
        "forward", "fp32", 3, N=1, C=8, K=8, G=8, Hi=9, Wi=9, Y=3, X=3, dilation_h=2, dilation_w=2,
        Di=5, Z=3, pad_d=1, stride_d=2,
    )  # fmt: skip
    found = features_of(problem, "grouped_conv_forward_fp32_3d_64x64x64_mem_interwave")
    assert (found["is_3d"], found["Do"], found["Ho"], found["Wo"]) == (1, 3, 5, 5)
    assert (found["is_depthwise"], found["is_small_group"], found["is_3x3_conv"]) == (1, 1, 1)
    assert (found["gemm_m_output"], found["gemm_n_output"], found["gemm_k_output"]) == (75, 8, 27)
    assert (found["problem_smaller_than_tile_n"], found["problem_smaller_than_tile_k"]) == (1, 1)
    assert (found["pipeline"], found["is_mem"], found["is_intrawave"]) == (3, 1, 0)
    assert found["lds_usage_estimate"] == (64 + 64) * 64 * 4
    assert found["log2_output"] == pytest.approx(np.log2(75))


def test_older_schemas_lack_later_columns() -> None:
    wide = schema_named("grouped_conv_97").names
    assert len(wide) == 97
    later = ("is_intrawave", "has_dsb", "has_si", "is_basic", "is_compv6", "is_mem")
    depth = ("is_3d", "Di", "Z", "Do", "stride_d", "pad_d", "dilation_h", "dilation_w")
    assert wide[30:38] == depth
    assert wide[61:67] == later


def test_gemm_columns_by_hand() -> None:
    row = {
        "M": [100], "N": [96], "K": [64], "split_k": [2], "layout": ["crr"], "dtype": ["fp8"],
        "tile_m": [64], "tile_n": [32], "tile_k": [128], "warp_m": [2], "warp_n": [2], "warp_k": [1],
        "warp_tile_m": [32], "warp_tile_n": [16], "warp_tile_k": [16], "pipeline": ["compv4"],
        "scheduler": ["interwave"], "epilogue": ["cshuffle"], "pad_m": [True], "pad_n": [False],
        "pad_k": [False], "persistent": [False],
    }  # fmt: skip
    schema = schema_named("gemm_universal_72")
    found = dict(zip(schema.names, schema.compute(row, hardware_features("gfx950"))[0].tolist(), strict=True))
    flops, bytes_ = 2 * 100 * 96 * 64, 100 * 64 + 64 * 96 + 100 * 96
    assert found["arithmetic_intensity"] == pytest.approx(flops / bytes_)
    assert (found["layout"], found["scheduler"], found["epilogue"], found["pipeline"]) == (2, 1, 1, 1)
    assert (found["num_warps"], found["lds_usage_estimate"]) == (4, 64 * 128 + 32 * 128)
    assert found["lds_usage_ratio"] == pytest.approx((64 * 128 + 32 * 128) / 32768)
    assert (found["num_tiles_m"], found["num_tiles_n"], found["num_tiles_k"]) == (2, 3, 1)
    assert (found["needs_padding_m"], found["needs_padding_n"], found["needs_padding_k"]) == (1, 0, 1)
    assert (found["has_padding_when_needed_m"], found["missing_required_padding_k"]) == (1, 1)
    assert (found["any_dim_too_small"], found["missing_any_required_padding"]) == (1, 1)
    assert found["tile_eff_m"] == pytest.approx(36 / 64)
    assert len(schema.names) == 72


SQUARE = {"tile": (256, 256, 64), "waves": (2, 2, 1)}
SMALL = {"tile": (32, 32, 16), "waves": (2, 2, 1)}


@pytest.mark.parametrize(
    ("sizes", "layout", "dtype", "epilogue", "kernel", "arch", "fractions"),
    [
        # The widest legal vectors are (1, 1, 8), (8, 1, 1), (4, 8, 8), (4, 4, 8) bf16 elements; a tile of
        # 256 x 256 x 64 moves 8 of each.
        ((393216, 256, 257), "rcr", "bf16", "cshuffle", SQUARE, "gfx950", (8, 8, 1)),
        ((196608, 641, 384), "rrr", "bf16", "cshuffle", SQUARE, "gfx950", (1, 8, 8)),
        ((316, 256, 3072), "crr", "bf16", "cshuffle", SQUARE, "gfx950", (2, 1, 1)),
        ((1792, 2048, 5972), "rcr", "bf16", "cshuffle", SQUARE, "gfx950", (2, 2, 1)),
        # The default epilogue stores row-major results one by one.
        ((1792, 1536, 7168), "rcr", "bf16", "default", SQUARE, "gfx950", (1, 1, 1 / 8)),
        # Two elements a thread are no step of bf16; half as many threads have four, which are 8 bytes.
        ((512, 512, 512), "rcr", "bf16", "cshuffle", SMALL, "gfx950", (1 / 8, 1 / 8, 1)),
        ((512, 512, 512), "rcr", "bf16", "cshuffle", SMALL, "gfx1250", (4 / 8, 4 / 8, 1)),
        ((512, 512, 512), "rcr", "fp32", "cshuffle", SMALL, "gfx950", (2 / 4, 2 / 4, 1)),
        # A product of fp8 matrices is stored as fp16.
        ((1792, 1536, 16), "rcr", "fp8", "cshuffle", SQUARE, "gfx950", (1, 1, 1)),
        ((1792, 1536, 24), "rcr", "fp8", "cshuffle", SQUARE, "gfx950", (2, 2, 1)),
    ],
)
def test_vector_widths_of_the_newest_gemm_features(
    sizes: tuple[int, int, int],
    layout: str,
    dtype: str,
    epilogue: str,
    kernel: Any,
    arch: str,
    fractions: Any,
) -> None:
    row = {
        **dict(zip("MNK", ([size] for size in sizes), strict=True)), "split_k": [1], "layout": [layout],
        "dtype": [dtype], **{f"tile_{a}": [size] for a, size in zip("mnk", kernel["tile"], strict=True)},
        **{f"warp_{a}": [count] for a, count in zip("mnk", kernel["waves"], strict=True)},
        "warp_tile_m": [16], "warp_tile_n": [16], "warp_tile_k": [16], "pipeline": ["compv3"],
        "scheduler": ["intrawave"], "epilogue": [epilogue], "persistent": [False],
        **{f"pad_{axis}": [True] for axis in "mnk"},
    }  # fmt: skip
    schema = schema_named("gemm_universal_78")
    assert schema.names[:72] == schema_named("gemm_universal_72").names
    assert schema.names[72:] == ("vec_a", "vec_b", "vec_c", "vec_frac_a", "vec_frac_b", "vec_frac_c")
    found = schema.compute(row, hardware_features(arch))[0]
    assert found[72:75].tolist() == [0, 0, 0]
    assert found[75:].tolist() == pytest.approx(list(fractions))
    with pytest.raises(ModelError, match="vec_frac_c are not finite"):
        schema.compute({**row, "epilogue": ["tdm"]}, hardware_features(arch))


@given(
    n=st.integers(1, 64), cg=st.integers(1, 300), kg=st.integers(1, 300), g=st.integers(1, 32),
    size=st.integers(7, 300), taps=st.sampled_from([1, 3, 5, 7]), stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    tile=st.sampled_from(sorted(PUBLISHED_TILES)), pipeline=st.sampled_from(["compv3", "mem", "basic_v1"]),
    direction=st.sampled_from(["forward", "bwd_data", "bwd_weight"]), arch=st.sampled_from(["gfx950", "cpu"]),
)  # fmt: skip
@settings(max_examples=60)
def test_no_problem_gives_nan_or_infinity(
    n: int, cg: int, kg: int, g: int, size: int, taps: int, stride: int, dilation: int,
    tile: tuple[int, int, int], pipeline: str, direction: str, arch: str,
) -> None:  # fmt: skip
    problem = GroupedConvProblem(
        direction, "bf16", 2, n, cg * g, kg * g, g, size, size, taps, taps, stride, stride,
        taps, taps, dilation, dilation,
    )  # fmt: skip
    kernel = parse_kernel_name(f"grouped_conv_{direction}_bf16_2d_{'x'.join(map(str, tile))}_{pipeline}")
    columns = pair_columns([problem], [kernel])
    for name in ("grouped_conv_97", "grouped_conv_113", "grouped_conv_own_1"):
        schema = schema_named(name)
        row = schema.compute(columns, hardware_features(arch))[0]
        found = dict(zip(schema.names, row, strict=True))
        assert np.isfinite(list(found.values())).all()
        for share in ("tile_eff_m", "overall_tile_efficiency", "fill_m", "fill", "tail"):
            if share in found:
                assert 0 < found[share] <= 1


def test_a_missing_column_and_an_unknown_feature_are_named() -> None:
    with pytest.raises(ModelError, match="needs the column N"):
        schema_named("grouped_conv_97").compute({"C": [1]}, {}, ["N"])
    with pytest.raises(ModelError, match="moon_phase"):
        schema_with("grouped_conv", ["N", "moon_phase"])
    with pytest.raises(ModelError, match="no feature schema 'x'"):
        schema_named("x")
    with pytest.raises(ModelError, match="column N holds a value that is not a number"):
        schema_named("grouped_conv_97").compute({"N": ["many"]}, {}, ["N"])


# The roofline's pieces as features: the same time as the model's, and what an engineer would compute.

SCHEMA = schema_named("gemm_pool_2")
KIND = Kind.of("gemm", dtype="bf16", layout="rcr")
NATIVE = parse_kernel_name(
    "gemm_bf16_rcr_comp_async_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16"
)
UNITS = 132


def triton(function: str = "tiles", **values: int) -> NamedKernel:
    known = {"BLOCK_K": 64, "BLOCK_M": 128, "BLOCK_N": 128, "num_stages": 4, "num_warps": 8} | values
    return NamedKernel(KIND, "triton", function, tuple(sorted(known.items())))


def library(**values: int) -> NamedKernel:
    return NamedKernel(KIND, "cublaslt", "a66", tuple(sorted({"stages": 35, "tile": 20, **values}.items())))


KERNELS = (NATIVE, triton(), triton("split_k", SPLIT_K=4), triton("few_rows", BLOCK_M=1), library())


def features(problem: GemmProblem, kernel: object, arch: str = "sm_90") -> dict[str, float]:
    rows = pair_columns([problem], [kernel])  # type: ignore[list-item]
    return dict(zip(SCHEMA.names, SCHEMA.compute(rows, hardware_features(arch))[0].tolist(), strict=True))


sizes = st.sampled_from([1, 7, 16, 100, 4096, 20000])


@given(sizes, sizes, sizes, st.sampled_from(["sm_90", "gfx950"]))
def test_the_time_is_the_roofline_models_and_its_pieces_are_no_longer(
    m: int, n: int, k: int, arch: str
) -> None:
    rows = pair_columns([GemmProblem("bf16", "rcr", m, n, k)], KERNELS)
    values = dict(zip(SCHEMA.names, SCHEMA.compute(rows, hardware_features(arch)).T, strict=True))
    assert np.allclose(values["roofline"], RooflineModel(arch).log_time(rows, {}) + math.log(1000))
    assert np.allclose(values["roofline_over_least"], values["roofline"] - values["least"], atol=1e-9)
    for piece in ("busy_over_least", "memory_over_least", "second_over_least"):
        assert (values[piece] <= values["roofline_over_least"] + 0.02).all()
    for piece in ("compute", "lds", "cached", "issued", "waiting"):
        assert (values[f"step_{piece}"] <= 1e-9).all()


def test_partial_results_of_split_k_are_written_and_read() -> None:
    problem, parts = GemmProblem("bf16", "rcr", 64, 256, 8192), 4
    split, whole = (features(problem, triton("split_k", SPLIT_K=number)) for number in (parts, 1))
    moved = 2 * (64 * 8192 + 256 * 8192 + 64 * 256)
    assert split["split_traffic"] == pytest.approx(math.log(parts * 64 * 256 * 8 / moved), abs=1e-3)
    assert whole["split_traffic"] == pytest.approx(math.log(1e-3)), "there are none"
    assert split["depth_of_a_part"] == pytest.approx(math.log(8192 / parts))
    assert split["second_over_least"] > whole["second_over_least"]


def test_a_cluster_that_is_not_full_wastes_workgroups() -> None:
    problem = GemmProblem("bf16", "rcr", 128, 5 * 128, 4096)
    alone, pairs = features(problem, library()), features(problem, library(cluster=3))
    assert (alone["cluster_m"], alone["cluster_n"], alone["cluster_fill"]) == (1, 1, 1)
    # Two workgroups along the rows of the library's result, which are our columns.
    assert (pairs["cluster_m"], pairs["cluster_n"]) == (1, 2)
    assert pairs["cluster_fill"] == pytest.approx(5 / 6)
    assert features(problem, triton())["cluster_n"] == 1


def test_the_last_round_is_partial() -> None:
    tiles = UNITS + 1
    values = features(GemmProblem("bf16", "rcr", 128, 128 * tiles, 4096), library())
    assert values["cluster_tail"] == pytest.approx(tiles / (2 * UNITS))
    full = features(GemmProblem("bf16", "rcr", 128, 128 * UNITS, 4096), library())
    assert full["cluster_tail"] == 1


def test_a_group_of_rows_reads_less_than_one_row() -> None:
    problem = GemmProblem("bf16", "rcr", 8192, 8192, 8192)
    grouped, plain = (features(problem, triton(GROUP_M=rows)) for rows in (8, 1))
    assert grouped["l2_traffic"] < plain["l2_traffic"]
    assert grouped["l2_share"] < plain["l2_share"]


def test_a_librarys_stages_are_depth_and_buffers() -> None:
    problem = GemmProblem("bf16", "rcr", 64, 64, 64)
    for number, depth, buffers in ((35, 64, 0), (15, 64, 3), (12, 32, 6), (24, 128, 6), (99, 0, 0)):
        values = features(problem, library(stages=number))
        assert (values["library_depth"], values["library_buffers"]) == (depth, buffers)
    assert features(problem, triton())["library_depth"] == 0


def test_alignment_is_the_power_of_two_that_divides() -> None:
    values = features(GemmProblem("bf16", "rcr", 24, 1023, 4096), NATIVE)
    assert [values[f"aligned_{one}"] for one in "mnk"] == [8, 1, 64]


def test_without_peak_rates_times_are_zero_and_the_rest_is_known() -> None:
    values = features(GemmProblem("bf16", "rcr", 256, 256, 256), NATIVE, arch="cpu")
    assert values["roofline"] == values["step_compute"] == values["least"] == 0
    assert values["rows_of_a_tile"] == 128


# Our own features: names are parsed correctly, groups are counted, quantities are monotonic.

OWN = schema_named("grouped_conv_own_1")
KERNEL = "grouped_conv_{}_bf16_2d_32x128x64_compv3"


def value(name: str, problem: GroupedConvProblem) -> float:
    kernel = parse_kernel_name(KERNEL.format(problem.direction))
    return float(OWN.compute(pair_columns([problem], [kernel]), hardware_features("gfx950"), [name])[0, 0])


def conv(direction: str = "forward", **changes: int) -> GroupedConvProblem:
    dims = {"N": 2, "C": 64, "K": 256, "G": 2, "Hi": 20, "Wi": 10, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    return GroupedConvProblem(direction, "bf16", 2, **{**dims, **changes})


@pytest.mark.parametrize("direction", ["forward", "bwd_data", "bwd_weight"])
def test_the_gemm_of_a_group_is_the_problems_own(direction: str) -> None:
    problem = conv(direction, stride_h=2)
    assert (value("M", problem), value("Ng", problem), value("Kg", problem)) == problem.gemm_shape


@pytest.mark.parametrize("direction", ["forward", "bwd_data", "bwd_weight"])
def test_work_is_the_problems_own(direction: str) -> None:
    problem = conv(direction, stride_h=2, C=24, K=36, G=12)
    kernel = parse_kernel_name(KERNEL.format(direction))
    work = work_of(pair_columns([problem], [kernel]))
    assert (work.flops[0], work.bytes[0]) == (problem.flops, problem.bytes)


def test_a_name_is_tile_m_tile_n_tile_k_and_groups_multiply_tiles() -> None:
    problem = conv()
    assert value("tiles_m", problem) == np.ceil(400 / 32)
    assert value("tiles_n", problem) == 1  # 128 outputs of a group in tiles of 128
    assert value("tiles_k", problem) == np.ceil(288 / 64)
    assert value("tiles", problem) == 13 * 1 * 2
    assert value("rounds", problem) == 1
    assert value("tail", problem) == pytest.approx(26 / 256)
    assert value("fill_m", problem) == pytest.approx(400 / (13 * 32))
    assert value("lds_kib", problem) == pytest.approx((32 + 128) * 64 * 2 / 1024)


def test_more_work_never_takes_fewer_rounds_or_bytes() -> None:
    for feature in ("log2_tiles", "log2_rounds", "log2_steps", "log2_bytes", "log2_flops", "log2_traffic"):
        values = [value(feature, conv(N=n)) for n in (1, 2, 5, 16, 64, 200)]
        assert values == sorted(values), feature


def test_vector_widths_that_channels_allow() -> None:
    assert value("vector_c_channels", conv(C=2 * 24)) == 8
    assert value("vector_c_channels", conv(C=2 * 7)) == 1
    assert value("vector_k_channels", conv(K=2 * 64)) == 16
    assert value("vectors_fit", conv(C=2 * 7)) == 0
    assert value("vectors_fit", conv()) == 1
