"""The roofline's pieces as features: the same time as the model's, and what an engineer would compute."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.kernel import NamedKernel, parse_kernel_name
from tile_oracle.model.roofline import RooflineModel
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import GemmProblem

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
