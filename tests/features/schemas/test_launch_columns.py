"""Launch features agree with the actual launch (device.gpu_abi.plan_launch)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pools import kernel_pool
from tile_oracle.arch import load_arch
from tile_oracle.device.gpu_abi import LaunchInfo, plan_launch
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.columns import pair_columns
from tile_oracle.features.hardware import hardware_features
from tile_oracle.features.schemas import schema_named
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem

SCHEMA = schema_named("grouped_conv_own_3")
POOLS = {
    (direction, ndim): kernel_pool(direction, "bf16", ndim, "sm_90")
    for direction in DIRECTIONS
    for ndim in (2, 3)
}
ARCH = load_arch("sm_90")


def features(
    problem: GroupedConvProblem, kernel: GroupedConvKernel, figures: dict[str, int] | None = None
) -> dict[str, float]:
    rows = pair_columns([problem], [kernel])
    rows |= CodeTable({kernel.name: figures} if figures else {}).columns(rows["kernel"])
    return dict(zip(SCHEMA.names, SCHEMA.compute(rows, hardware_features("sm_90"))[0], strict=True))


@st.composite
def problems(draw: st.DrawFn) -> GroupedConvProblem:
    ndim = draw(st.sampled_from([2, 3]))
    groups = draw(st.sampled_from([1, 2, 8, 32]))
    axes = ["h", "w", "d"][:ndim]
    names = {"h": ("Hi", "Y"), "w": ("Wi", "X"), "d": ("Di", "Z")}
    sizes: dict[str, int] = {}
    for axis in axes:
        image, taps = names[axis]
        sizes[image] = draw(st.integers(5, 40))
        sizes[taps] = draw(st.integers(1, 5))
        sizes[f"stride_{axis}"] = draw(st.integers(1, 3))
        sizes[f"pad_{axis}"] = draw(st.integers(0, 2))
    channels, outputs = (groups * draw(st.integers(1, 300)) for _ in range(2))
    return GroupedConvProblem(
        draw(st.sampled_from(DIRECTIONS)), "bf16", ndim, N=draw(st.integers(1, 70)), C=channels, K=outputs,
        G=groups, **sizes,
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300)
@given(problem=problems(), choice=st.integers(0, 10_000))
def test_the_launch_is_the_one_that_is_made(problem: GroupedConvProblem, choice: int) -> None:
    pool = POOLS[problem.direction, problem.ndim]
    able = [kernel for kernel in pool if ARCH.problem_refusal(kernel, problem) is None]
    kernel = able[choice % len(able)]
    info = LaunchInfo(
        threads=128,
        lds_bytes=0,
        two_stage=kernel.two_stage,
        split_image=kernel.split_image,
        direction=kernel.direction,
        tile=kernel.tile,
        groups_to_merge=kernel.num_groups_to_merge,
    )
    plan = plan_launch(problem, info, ARCH.hardware.num_cus)
    found = features(problem, kernel)
    assert found["launch_workgroups"] == math.prod(plan.conv.grid)
    assert found["launch_splits"] == plan.split_k
    # The workspace holds fp32; features count it in elements.
    assert 2 * found["launch_workspace"] == plan.workspace_bytes
    assert found["launch_fill"] > 0
    # Operations are counted by the output, of which bwd_data's tiles know nothing where it is all padding.
    assert found["launch_fill"] <= 1 or problem.direction == "bwd_data"
    assert 0 < found["launch_tail"] <= 1


def test_more_workgroups_at_once_take_fewer_rounds() -> None:
    problem = GroupedConvProblem("forward", "bf16", 2, N=64, C=64, K=256, G=1, Hi=56, Wi=56, Y=1, X=1)
    kernel = next(kernel for kernel in POOLS["forward", 2] if kernel.tile == (64, 64, 64))
    units = ARCH.hardware.num_cus
    workgroups = 64 * 56 * 56 // 64 * 4
    for held in (1, 2, 5):
        found = features(problem, kernel, {"vgprs": 64, "lds_bytes": 1024, "workgroups_per_cu": held})
        assert found["launch_held"] == held
        assert found["launch_held_rounds"] == math.ceil(workgroups / units / held)
        assert found["launch_resident"] == held
        assert found["launch_latency"] == found["launch_held_rounds"] * (found["launch_steps"] + 4)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_without_groups_stride_or_splits_it_is_the_problems_own_gemm(direction: str) -> None:
    problem = GroupedConvProblem(
        direction, "bf16", 2, N=3, C=24, K=40, G=1, Hi=9, Wi=9, Y=3, X=3, pad_h=1, pad_w=1
    )
    kernel = next(
        k for k in POOLS[direction, 2] if not k.two_stage and ARCH.problem_refusal(k, problem) is None
    )
    found = features(problem, kernel)
    shape = tuple(found[f"launch_{name}"] for name in ("rows", "columns", "depth"))
    assert np.array_equal(shape, problem.gemm_shape)
