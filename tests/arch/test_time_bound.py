"""Lower bounds of a kernel's time: never above the time of a correct kernel."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from tile_oracle.arch import load_arch
from tile_oracle.arch.time_bound import MARGIN, Limits, gpu_limits, impossible
from tile_oracle.device.reference import exact_output
from tile_oracle.files.data_files import data_folder
from tile_oracle.operation import operation_named
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem import problem_from_row
from tile_oracle.targets.cpu_info import cpu_peak_flops

GROUPED_CONV = operation_named("grouped_conv")
CONVS = [
    GroupedConvProblem.from_id(f"{direction}-{rest}")
    for direction in DIRECTIONS
    for rest in ("fp32-n2-g3-c9-k21-i6x5-f3x2-s2x1-p1x0-d1x2", "fp32-n1-c5-k3-i4x3x5-f2x1x3-p1x0x1")
] + [GroupedConvProblem.from_id("forward-fp32-n1-c4-k4-i1x1-f3x3-p1")]


@pytest.mark.parametrize("problem", CONVS, ids=lambda problem: problem.id)
def test_only_products_inside_the_image_count(problem: GroupedConvProblem) -> None:
    ones = [np.ones(shape, np.int32) for shape in problem.operand_shapes[:2]]
    products = int(exact_output(problem, *ones).astype(np.int64).sum())
    operations, read = GROUPED_CONV.work_bound(problem)
    assert operations == 2 * products / 4
    needed = 0
    for number in (0, 1):
        # The elements on which the result depends: a one among zeros changes it.
        other = ones[1 - number]
        reached = 0
        for at in range(ones[number].size):
            single = np.zeros(ones[number].shape, np.int32)
            single.ravel()[at] = 1
            operands = (single, other) if number == 0 else (other, single)
            reached += bool(exact_output(problem, *operands).any())
        needed += reached
    assert read == 4 * needed


def test_a_run_faster_than_the_arithmetic_or_the_memory_is_refused() -> None:
    limits = gpu_limits("sm_90", 132)
    large = GemmProblem("bf16", "rcr", 8192, 8192, 8192)
    least = limits.least_ms(large)
    assert least == pytest.approx(large.flops * 7 / 8 / (MARGIN * 132 * 1.98e9 * 4096) * 1e3)
    assert impossible(large, limits, 1.01 * least) is None
    why = impossible(large, limits, 0.99 * least)
    assert why is not None
    assert "faster than the device can be" in why
    thin = GemmProblem("bf16", "rcr", 1, 65536, 65536)
    assert limits.least_ms(thin) == pytest.approx((2 * 65536 * 65537 - 60 * 2**20) / (MARGIN * 4.8e12) * 1e3)


def test_without_known_peaks_nothing_is_refused() -> None:
    assert impossible(GemmProblem("bf16", "rcr", 8, 8, 8), Limits(), 0.0) is None
    assert gpu_limits("gfx1100", 0) == Limits()
    assert load_arch("gfx1100").peak is None


def test_this_machines_core_has_a_limit_far_above_its_actual_rate() -> None:
    peak = cpu_peak_flops()
    assert peak["bf16"] == 2 * peak["fp32"] >= 4e11
    assert all(math.isfinite(value) for value in peak.values())


def test_recorded_kernels_stay_clear_of_the_bound() -> None:
    """The fastest kernels of an H200 on 300 problems."""
    path = data_folder("models") / "grouped_conv_forward_bf16_sm_90" / "nvidia-h200-84ff98ac"
    records = pd.read_parquet(path / "forward_unseen_300" / "default.parquet")
    records = records[records["latency_ms"].notna()]
    fastest = records.loc[records.groupby("problem")["latency_ms"].idxmin()]
    assert len(fastest) == 300
    limits = gpu_limits("sm_90", 132)
    for row in fastest.to_dict("records"):
        problem = problem_from_row(row)
        assert limits.least_ms(problem) < 0.5 * row["latency_ms"], problem.id
