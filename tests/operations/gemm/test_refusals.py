"""Which GEMM kernels architectures allow, and why they refuse others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.arch import known_archs, load_arch
from tile_oracle.operations.gemm.kernel import GemmKernel, parse_gemm_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

GPU = parse_gemm_name(
    "gemm_bf16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"
)
CPU = parse_gemm_name("gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_1x1x1_8x32x1")


def shuffled(**change: Any) -> GemmKernel:
    kernel = replace(GPU, pipeline="preshufflev2", warp_m=1, warp_n=4)
    return replace(kernel, **change)


def test_good_kernels_are_allowed() -> None:
    assert load_arch("gfx950").refusal(GPU) is None
    assert load_arch("gfx950").refusal(shuffled()) is None
    assert load_arch("cpu").refusal(CPU) is None
    assert load_arch("gfx950").workgroup_threads(GPU) == 256
    assert load_arch("gfx950").lds_bytes(GPU) == (128 + 128) * 64 * 2
    assert load_arch("gfx950").lds_bytes(replace(GPU, pipeline="compv4")) == 2 * (128 + 128) * 64 * 2
    assert load_arch("gfx950").lds_bytes(shuffled()) == 2 * 128 * 64 * 2  # only A is staged


@pytest.mark.parametrize(
    ("arch", "kernel", "reason"),
    [
        ("gfx950", replace(GPU, scheduler="interwave"), "scheduler: compv3 on gfx950 is intrawave"),
        ("gfx950", replace(GPU, pipeline="compv9"), "pipeline: gfx950 has no compv9, only basic_v1"),
        ("gfx950", replace(GPU, warp_m=3), "waves: 3x2x1 is not one of"),
        ("gfx950", replace(GPU, warp_tile_k=64), "warp tile: 32x32x64 is not one of .* for bf16 on gfx950"),
        ("gfx950", replace(GPU, tile_m=96), "tile: tile_m = 96 is not a multiple of waves x warp tile = 2"),
        ("gfx950", replace(GPU, tile_m=256, tile_n=256, tile_k=128, pipeline="compv4"), "LDS: 256x256x128"),
        ("gfx950", shuffled(layout="rrr"), "layout: preshufflev2 shuffles B column by column"),
        ("gfx950", shuffled(warp_tile_m=4, warp_tile_n=64), "warp tile: 4x64x16 is not one of .* for"),
        ("gfx908", shuffled(), "warp tile: 32x32x16 is not one of none for preshuffled bf16 on gfx908"),
        ("gfx942", replace(GPU, pipeline="comp_async"), "pipeline: comp_async on gfx942: needs wide"),
        ("gfx1100", replace(GPU, dtype="fp8"), "dtype: gfx1100 has kernels for bf16, fp16, not for fp8"),
        ("sm_90", replace(GPU, dtype="fp8"), "dtype: sm_90 has kernels for bf16, fp16, not for fp8"),
        ("sm_90", shuffled(), "pipeline: sm_90 has no preshufflev2, only basic_v1,"),
        ("cpu", replace(CPU, dtype="fp8"), "dtype: cpu has kernels for bf16, fp16, fp32, not for fp8"),
        ("cpu", replace(CPU, persistent=True), "persistent: cpu has one thread"),
        ("cpu", replace(CPU, pad_n=False), "padding: cpu kernels always handle partial tiles"),
        ("cpu", replace(CPU, epilogue="default"), "epilogue: kernels on cpu end in cshuffle, not default"),
        ("cpu", replace(CPU, pipeline="preshufflev2"), "pipeline: cpu has no preshufflev2, only basic_v1"),
    ],
)
def test_a_refusal_says_why(arch: str, kernel: GemmKernel, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert load_arch(arch).refusals(kernel) == ()
    assert load_arch(arch).refusal(kernel) == load_arch(arch).refusals(kernel)[0]


@given(st.integers(1, 600), st.integers(1, 600), st.integers(1, 600), st.tuples(*[st.booleans()] * 3))
def test_without_padding_every_tile_must_be_whole(
    m: int, n: int, k: int, pads: tuple[bool, bool, bool]
) -> None:
    kernel = replace(GPU, pad_m=pads[0], pad_n=pads[1], pad_k=pads[2])
    whole = [size % tile == 0 or pad for size, tile, pad in zip((m, n, k), kernel.tile, pads, strict=True)]
    reason = load_arch("gfx950").problem_refusal(kernel, GemmProblem("bf16", "rcr", m, n, k))
    assert (reason is None) == all(whole)
    if reason is not None:
        axis = "mnk"[whole.index(False)]
        assert reason.startswith(f"padding: pad_{axis} is off and {axis.upper()} = ")


def test_each_part_of_a_split_depth_is_tiled_on_its_own() -> None:
    arch = load_arch("gfx950")
    assert arch.problem_refusal(GPU, GemmProblem("bf16", "rcr", 128, 128, 512, 8)) is None
    reason = arch.problem_refusal(GPU, GemmProblem("bf16", "rcr", 128, 128, 448, 2))
    assert reason == "padding: pad_k is off and K = 448 is not a multiple of tile_k = 64 x split_k 2"
    split = load_arch("cpu").problem_refusal(CPU, GemmProblem("bf16", "rcr", 9, 9, 9, 2))
    assert split == "split_k: cpu kernels do not split the depth: split_k = 2 must be 1"


def test_a_problem_of_another_kind_is_refused() -> None:
    arch = load_arch("gfx950")
    assert (
        arch.problem_refusal(GPU, GemmProblem("fp16", "rcr", 1, 1, 1))
        == "kind: the kernel is for gemm bf16 rcr, the problem is gemm fp16 rcr"
    )
    conv = GroupedConvProblem("forward", "bf16", 2, N=1, C=8, K=8, G=1, Hi=9, Wi=9, Y=1, X=1)
    assert "the problem is forward bf16 2D" in str(arch.problem_refusal(GPU, conv))


def test_every_architecture_multiplies_something() -> None:
    """But those that Triton alone compiles for."""
    archs = [arch for arch in map(load_arch, known_archs()) if arch.dtypes("gemm")]
    assert {"gfx950", "gfx942", "gfx90a", "gfx1250", "sm_90"} <= {arch.name for arch in archs}
    for arch in archs:
        assert "bf16" in arch.dtypes("gemm")
        assert {"basic_v1", "mem", "compv3"} <= set(arch.pipelines("gemm"))


def test_a_tile_that_threads_cannot_share_is_refused() -> None:
    small = GemmKernel("bf16", "rcr", 16, 64, 16, 1, 4, 1, 16, 16, 16, pipeline="mem")
    assert load_arch("sm_90").refusal(small) is None
    assert load_arch("gfx950").refusal(small) is None
    few = GemmKernel("bf16", "rcr", 16, 512, 16, 1, 16, 1, 16, 32, 16, pipeline="mem")
    said = "vectors: tile_m x tile_k = 256 elements are not a multiple of 512 threads"
    assert said in load_arch("sm_90").refusals(few)
