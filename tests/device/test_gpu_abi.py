"""Grids, splits and workspaces, by hand from kernels/gpu/abi.h."""

from __future__ import annotations

import ctypes
import re
import struct

import pytest

from tile_oracle.device.gpu_abi import (
    ABI_VERSION,
    GpuArgs,
    GpuGemmArgs,
    LaunchInfo,
    Unlaunchable,
    gpu_args,
    plan_launch,
    read_launch_info,
)
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

HEADER = (data_folder("kernels") / "gpu" / "abi.h").read_text()


def problem(direction: str = "forward", **changes: int) -> GroupedConvProblem:
    sizes = {"N": 4, "C": 96, "K": 160, "G": 2, "Hi": 15, "Wi": 17, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    return GroupedConvProblem(direction, "bf16", 2, **(sizes | changes))


def info(direction: str = "forward", **changes: object) -> LaunchInfo:
    values: dict[str, object] = {
        "threads": 256,
        "lds_bytes": 70_000,
        "two_stage": False,
        "split_image": False,
    }
    values |= {"direction": direction, "tile": (64, 32, 64), "groups_to_merge": 1}
    return LaunchInfo(**(values | changes))  # type: ignore[arg-type]


def test_the_structure_matches_the_header() -> None:
    body = HEADER[HEADER.index("typedef struct to_gpu_args {") : HEADER.index("} to_gpu_args;")]
    plain = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL).split("{", 1)[1]
    names = [
        name for words in plain.split(";") for name in re.findall(r"\*?(\w+)(?=\s*(?:,|$))", words.strip())
    ]
    assert [name for name, *_ in GpuArgs._fields_] == names
    assert ctypes.sizeof(GpuArgs) == 128
    assert f"#define TILE_ORACLE_GPU_ABI_VERSION {ABI_VERSION}\n" in HEADER


def test_a_problem_fills_its_structure() -> None:
    args = gpu_args(problem(stride_h=2, dilation_w=3, X=2), 1 << 40, 2 << 40, 3 << 40, 0, 7)
    assert isinstance(args, GpuArgs)
    assert (args.in0, args.in1, args.out, args.workspace) == (1 << 40, 2 << 40, 3 << 40, None)
    assert (args.N, args.C, args.Hi, args.Ho, args.Wo, args.split_k) == (4, 96, 15, 8, 16, 7)
    assert (args.Di, args.pad_d, args.stride_h, args.dilation_w, args.reserved) == (1, 0, 2, 3, 0)
    args = gpu_args(GemmProblem("bf16", "rcr", 3, 5, 7), 1 << 40, 2 << 40, 3 << 40, 0, 1)
    assert isinstance(args, GpuGemmArgs)
    assert ctypes.sizeof(args) == 48
    assert (args.a, args.b, args.c, args.M, args.N, args.K) == (1 << 40, 2 << 40, 3 << 40, 3, 5, 7)
    assert (args.reserved, args.reserved_too) == (None, 0)


@pytest.mark.parametrize(
    ("what", "kernel", "grid"),
    [
        # 4 * 15 * 17 = 1020 rows in 16 tiles of 64, 80 columns in 3 of 32; 2 groups.
        (problem(), info(), (48, 2, 1)),
        # An image of 153 rows takes 3 tiles, four of them together would take 10.
        (problem(Hi=9), info(split_image=True), (4 * 3 * 3, 2, 1)),
        # Both groups in one tile: 160 columns.
        (problem(), info(groups_to_merge=2), (16 * 5, 1, 1)),
        # Each residue of the stride separately: 4 * 8 * 17 = 544 rows, 48 columns.
        (problem("bwd_data", stride_h=2), info("bwd_data"), (9 * 2, 2, 2)),
        # 80 rows, 48 * 9 = 432 columns.
        (problem("bwd_weight"), info("bwd_weight"), (2 * 14, 2, 1)),
    ],
    ids=["forward", "split image", "merged groups", "bwd_data", "bwd_weight"],
)
def test_the_grid_follows_the_abi(
    what: GroupedConvProblem, kernel: LaunchInfo, grid: tuple[int, int, int]
) -> None:
    plan = plan_launch(what, kernel, 100)
    assert plan.conv.grid == grid
    assert plan.conv.block == (256, 1, 1)
    assert plan.conv.lds_bytes == 70_000
    assert (plan.finish, plan.split_k, plan.workspace_bytes) == (None, 1, 0)


@pytest.mark.parametrize(
    ("units", "split"), [(100, 4), (28, 1), (29, 2), (10_000, 16)], ids=["fill", "full", "just not", "all"]
)
def test_two_stages_split_until_the_device_is_full(units: int, split: int) -> None:
    """28 x 2 workgroups; 1020 products in at most 16 pieces of 64."""
    plan = plan_launch(problem("bwd_weight"), info("bwd_weight", two_stage=True), units)
    assert plan.split_k == plan.conv.grid[2] == split
    assert plan.workspace_bytes == 4 * split * 160 * 9 * 48
    assert (plan.finish.grid, plan.finish.block, plan.finish.lds_bytes) == ((270, 1, 1), (256, 1, 1), 0)


@pytest.mark.parametrize(
    ("what", "kernel", "why"),
    [
        (problem(), info("bwd_data"), "for bwd_data"),
        (problem(), info(groups_to_merge=4), "merges 4 groups"),
        (problem(C=70_000, K=70_000, G=70_000), info(), "70,000"),
        (problem(N=2**15, Hi=300, Wi=300), info(), "below"),
        (problem(N=1, C=2, K=2, Hi=40_000, Wi=40_000), info(), "below"),
        (problem(N=1, C=1, K=1, G=1, Hi=1, Wi=2**30 - 2, stride_w=2**20), info(), "2\\^30 along each axis"),
        (
            problem(N=1, C=1, K=1, G=1, Hi=1, Wi=1, pad_w=2**29, stride_w=2**20),
            info(),
            "2\\^30 along each axis",
        ),
    ],
    ids=["direction", "merge", "groups", "rows", "image", "extent", "padding"],
)
def test_what_the_contract_leaves_to_the_host_is_refused(
    what: GroupedConvProblem, kernel: LaunchInfo, why: str
) -> None:
    with pytest.raises(Unlaunchable, match=why):
        plan_launch(what, kernel, 100)


@pytest.mark.parametrize(
    ("persistent", "units", "workgroups"), [(False, 4, 30), (True, 4, 8), (True, 100, 30), (True, 0, 1)]
)
def test_a_gemm_has_one_workgroup_per_tile_or_fills_the_device(
    persistent: bool, units: int, workgroups: int
) -> None:
    """300 rows in 5 tiles of 64, 170 columns in 6 of 32. 256 threads: two workgroups per compute unit."""
    plan = plan_launch(GemmProblem("bf16", "crr", 300, 170, 9), info("crr", persistent=persistent), units)
    assert plan.conv.grid == (workgroups, 1, 1)
    assert (plan.finish, plan.split_k, plan.workspace_bytes) == (None, 1, 0)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (GemmProblem("bf16", "rrr", 8, 8, 8), "the kernel is for rcr"),
        (GemmProblem("bf16", "rcr", 8, 8, 8, 2), "do not split the depth: split_k = 2"),
        (GemmProblem("bf16", "rcr", 2**31 - 1, 8, 8), "below"),
        (GemmProblem("bf16", "rcr", 2**25, 2**16, 8), "workgroups"),
        (GemmProblem("fp8", "rcr", 8, 8, 9), "K = 9 must be even"),
    ],
    ids=["layout", "split_k", "rows", "tiles", "odd fp8"],
)
def test_gemms_that_cannot_be_launched_are_refused(what: GemmProblem, why: str) -> None:
    with pytest.raises(Unlaunchable, match=why):
        plan_launch(what, info("rcr"), 100)


def test_a_kernels_launch_info_is_read() -> None:
    gemm = read_launch_info(struct.pack("<9i", ABI_VERSION, 128, 4096, 4, 6, 64, 32, 16, 1))
    assert gemm == LaunchInfo(128, 4096, False, False, "ccr", (64, 32, 16), 1, persistent=True)
    found = read_launch_info(struct.pack("<9i", ABI_VERSION, 128, 4096, 3, 2, 64, 32, 16, 8) + b"more")
    assert found == LaunchInfo(128, 4096, True, True, "bwd_weight", (64, 32, 16), 8)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes long"),
        (struct.pack("<9i", 7, 128, 0, 0, 0, 1, 1, 1, 1), "GPU ABI is 7"),
        (struct.pack("<9i", ABI_VERSION, 0, 0, 0, 0, 1, 1, 1, 1), "no kernel has"),
        (struct.pack("<9i", ABI_VERSION, 64, 0, 0, 7, 1, 1, 1, 1), "no kernel has"),
        (struct.pack("<9i", ABI_VERSION, 64, 0, 0, 0, 1, 0, 1, 1), "no kernel has"),
    ],
)
def test_nonsense_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_launch_info(data)
