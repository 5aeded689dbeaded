"""Our own features: names are parsed correctly, groups are counted, quantities are monotonic."""

from __future__ import annotations

import numpy as np
import pytest

from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named, work_of
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

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
