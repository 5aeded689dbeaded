"""The GPU kernels of both architectures, run on an emulated device: results, bounds, waits, races in LDS.

The pool `tiny` (a quarter of it) and a sample of all options by default; TILE_ORACLE_EMULATED_POOL=default
(or full-tests) runs every kernel of that set, in bf16, fp16 and (gfx950) fp32, on all problems that it takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.kernels.emulated_gpu.device import EmulatedGpu
from tests.kernels.emulated_gpu.problems import awkward_problems
from tests.pools import kernel_pool
from tests.samples import sampled
from tile_oracle.arch import load_arch
from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operations.gemm.kernel import GemmKernel, parse_gemm_name
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem import Problem

POOL = os.environ.get("TILE_ORACLE_EMULATED_POOL", "tiny")
ARCHS = ("gfx950", "sm_90")

POOLS = [(arch, dtype) for arch in ARCHS for dtype in (["bf16"] if POOL == "tiny" else ["bf16", "fp16"])]
POOLS += [] if POOL == "tiny" else [("gfx950", "fp32")]

BOTH = (
    "forward_bf16_2d_16x64x64_basic_v1_interwave_dsb_si",
    "forward_fp16_3d_32x64x64_mem_intrawave",
    "forward_bf16_2d_64x64x64_comp_async_intrawave_dsb_v8x8x8_gm8",
    "forward_fp16_2d_32x128x64_compv4_intrawave_dsb_v2x2x2",
    "forward_bf16_2d_64x128x64_compv3_intrawave_v8x8x8_eg_pad000",
    "bwd_data_bf16_2d_128x128x64_compv5_intrawave",
    "bwd_data_fp16_3d_16x64x128_basic_async_v1_interwave_v8x8x8",
    "bwd_data_bf16_2d_32x64x128_compv6_intrawave_dsb_epdefault",
    "bwd_data_fp16_2d_64x64x128_mem_interwave_dsb_eg",
    "bwd_weight_bf16_2d_128x64x128_compv3_intrawave_2s",
    "bwd_weight_fp16_3d_64x64x64_compv6_intrawave_gm4",
    "bwd_weight_bf16_2d_32x64x64_comp_async_intrawave_dsb_v8x8x8_epdefault_2s",
    "bwd_weight_fp16_2d_64x128x64_basic_v1_intrawave_v1x8x2",
)
ONE = (
    ("gfx950", "forward_bf16_2d_64x64x64_compv3_intrawave_w2x2x1_wt32x32x8"),
    ("gfx950", "bwd_weight_fp16_2d_64x64x64_mem_intrawave_w2x2x1_wt32x32x8_v8x8x8"),
    ("gfx950", "forward_bf16_2d_16x64x64_compv3_intrawave_w4x1x1_wt4x64x16"),
    ("gfx950", "bwd_weight_fp16_2d_16x64x64_mem_interwave_w4x1x1_wt4x64x16_v4x8x8"),
    ("gfx950", "bwd_data_fp16_3d_64x16x64_compv6_intrawave_w1x4x1_wt64x4x16_v4x4x8"),
    ("gfx950", "bwd_data_bf16_2d_64x16x128_comp_async_intrawave_dsb_w1x4x1_wt64x4x16_v8x8x8_epdefault"),
    ("gfx950", "forward_fp32_2d_16x64x32_basic_v1_interwave_dsb_si_w1x4x1_wt16x16x16_v2x4x4"),
    ("gfx950", "forward_fp32_3d_32x64x32_mem_intrawave_w2x2x1_wt16x16x16_v4x4x4"),
    ("gfx950", "forward_fp32_2d_64x64x32_comp_async_intrawave_dsb_w4x1x1_wt16x16x16_v4x4x4_gm8"),
    ("gfx950", "forward_fp32_2d_32x128x32_compv4_intrawave_dsb_w1x4x1_wt16x16x16_v2x2x2"),
    ("gfx950", "forward_fp32_2d_64x128x32_compv3_intrawave_w2x2x1_wt16x16x4_v4x4x4_eg_pad000"),
    ("gfx950", "bwd_data_fp32_2d_128x128x32_compv5_intrawave_w4x4x1_wt16x16x16_v4x4x4"),
    ("gfx950", "bwd_data_fp32_3d_16x64x64_basic_async_v1_interwave_v4x4x4"),
    ("gfx950", "bwd_data_fp32_2d_32x64x64_compv6_intrawave_dsb_v4x4x4_epdefault"),
    ("gfx950", "bwd_data_fp32_2d_64x64x64_mem_interwave_dsb_v1x4x1_eg"),
    ("gfx950", "bwd_data_fp32_2d_64x64x32_comp_async_intrawave_dsb_w2x2x1_wt16x16x4_v4x4x2"),
    ("gfx950", "bwd_weight_fp32_2d_128x64x64_compv3_intrawave_w8x2x1_wt16x16x16_v4x4x4_2s"),
    ("gfx950", "bwd_weight_fp32_3d_64x64x32_compv6_intrawave_w4x1x1_wt16x16x16_v4x4x4_gm4"),
    ("gfx950", "bwd_weight_fp32_2d_32x64x32_comp_async_intrawave_dsb_w2x2x1_wt16x16x16_v4x4x4_epdefault_2s"),
    ("gfx950", "bwd_weight_fp32_2d_64x128x32_basic_v1_intrawave_w2x2x1_wt16x16x4_v1x4x2"),
    ("sm_90", "forward_bf16_2d_128x256x32_comp_async_intrawave_dsb_w2x4x1_wt32x32x16_v8x8x8"),
    ("sm_90", "bwd_data_fp16_2d_32x64x64_comp_async_intrawave_dsb_v2x2x2_gm2"),
)


def named(name: str) -> GroupedConvKernel:
    return parse_kernel_name(f"grouped_conv_{name}")


@pytest.fixture(scope="module")
def gpu_of_classes(tmp_path_factory: pytest.TempPathFactory) -> EmulatedGpu:
    return EmulatedGpu(tmp_path_factory.mktemp("emulated_classes"), vector_classes=True)


def what_is_wrong(
    gpu: EmulatedGpu, kernel: Kernel, arch: str, problems: Sequence[Problem]
) -> tuple[int, list[str]]:
    """How many problems the kernel accepts, and which ones failed and how."""
    rules = load_arch(arch)
    compiled = gpu.kernel(kernel, arch)
    taken, wrong = 0, []
    for problem in problems:
        if rules.problem_refusal(kernel, problem) is not None:
            continue
        try:
            # One compute unit, so that workgroups of a persistent kernel take some tiles each.
            said = compiled.run(problem, compute_units=1 if isinstance(problem, GemmProblem) else 4)
        except Unlaunchable:
            continue
        taken += 1
        if said is not None:
            wrong.append(f"{kernel.name} on {problem.id}: {said}")
    return taken, wrong


def assert_right(gpu: EmulatedGpu, arch: str, name: str) -> None:
    """Asserts that the architecture has the kernel, and that it computes all problems that it takes."""
    kernel = parse_gemm_name(name) if name.startswith("gemm_") else named(name)
    assert load_arch(arch).refusal(kernel) is None
    if isinstance(kernel, GemmKernel):
        problems: Sequence[Problem] = [
            GemmProblem(kernel.dtype, kernel.layout, *shape) for shape in GEMM_SHAPES
        ]
        # All but one product of an odd depth, which fp8 does not take; without padding those of whole tiles.
        expected = 1 if not kernel.pad_m else 6 if kernel.dtype == "fp8" else 7
    else:
        problems = awkward_problems(kernel.direction, kernel.dtype, kernel.ndim)
        expected = 0
    taken, wrong = what_is_wrong(gpu, kernel, arch, problems)
    assert wrong == []
    assert taken == (expected or taken) > 0


@pytest.mark.parametrize(
    ("arch", "name"), sampled([*((arch, name) for name in BOTH for arch in ARCHS), *ONE], every=10)
)
def test_options(gpu: EmulatedGpu, arch: str, name: str) -> None:
    assert_right(gpu, arch, name)


OLDER_GFX9 = ("gfx942", "gfx90a")
OF_OLDER_GFX9 = (
    "forward_bf16_2d_16x64x64_basic_v1_interwave_dsb_si",
    "forward_fp16_2d_32x128x64_compv4_intrawave_dsb_w1x4x1_wt32x32x16_v2x2x2_epdefault",
    "forward_bf16_2d_16x64x64_compv3_intrawave_w4x1x1_wt4x64x16",
    "bwd_data_bf16_2d_32x64x128_compv6_intrawave_w2x2x1_wt16x16x32_epdefault",
    "bwd_data_fp32_2d_64x64x64_mem_interwave_v1x4x1_eg",
    "bwd_weight_fp16_3d_64x64x64_compv5_intrawave_w2x2x1_wt32x32x8_gm4",
)


@pytest.mark.parametrize("name", sampled(OF_OLDER_GFX9, every=3))
@pytest.mark.parametrize("arch", OLDER_GFX9)
def test_older_gfx9(gpu: EmulatedGpu, arch: str, name: str) -> None:
    """Warp tiles of one instruction, and those of two: kernels/gpu/instructions_gfx90a.hpp itself runs."""
    assert_right(gpu, arch, name)


def one_a_pipeline(names: Sequence[str]) -> list[str]:
    """The first kernel of each pipeline; all where the whole pool is asked for."""
    chosen = {named(name).pipeline: name for name in reversed(names)}
    return list(chosen.values()) if POOL == "tiny" else list(names)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_a_pipeline(BOTH))
def test_vectors_that_are_classes(gpu_of_classes: EmulatedGpu, name: str) -> None:
    """As for nvcc; the only other difference is in instructions, which are emulated here."""
    assert_right(gpu_of_classes, "sm_90", name)


@pytest.mark.slow
@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("direction", ["forward", "bwd_data", "bwd_weight"])
@pytest.mark.parametrize(("arch", "dtype"), POOLS)
def test_pool(gpu: EmulatedGpu, arch: str, dtype: str, direction: str, ndim: int) -> None:
    kernels = kernel_pool(direction, dtype, ndim, arch, POOL)
    problems = awkward_problems(direction, dtype, ndim)
    if POOL == "tiny":  # a quarter of the kernels, in turn, and few problems: the rest is for the whole run
        kernels = kernels[("forward", "bwd_data", "bwd_weight").index(direction) + ndim - 2 :: 4]
        problems = problems[1:4]
    wrong = []
    for kernel in kernels:
        wrong += what_is_wrong(gpu, kernel, arch, problems)[1]
    assert wrong == []


GEMM_SHAPES = ((1, 1, 1), (1, 70, 34), (37, 1, 64), (65, 130, 200), (7, 9, 6), (33, 24, 518), (128, 128, 128))
GEMMS = (
    "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_True_64x64x64_2x2x1_16x16x16",
    "gemm_fp16_rrr_mem_default_interwave_True_True_True_False_32x128x64_1x4x1_32x32x16",
    "gemm_fp16_crr_comp_async_cshuffle_intrawave_True_True_True_True_64x64x64_2x2x1_16x16x32",
    "gemm_bf16_ccr_compv4_cshuffle_intrawave_True_True_True_False_64x128x64_2x2x1_32x32x16",
    "gemm_bf16_ccr_basic_async_v1_default_interwave_True_True_True_True_64x64x64_2x2x1_16x16x16",
    "gemm_fp16_rrr_compv5_cshuffle_intrawave_False_False_False_True_64x64x64_2x2x1_16x16x32",
)
FULL_GEMMS = (
    "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_False_256x256x64_2x2x1_32x32x16",
    "gemm_bf16_rcr_mem_cshuffle_intrawave_True_True_True_True_128x256x128_2x2x1_32x32x16",
)
"""For gfx950: as many accumulators and prefetched tiles as the registers hold."""
GEMMS_OF_FP8 = (
    "gemm_fp8_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_16x16x32",
    "gemm_fp8_rcr_comp_async_default_intrawave_True_True_True_True_64x64x128_2x2x1_16x16x64",
    "gemm_fp8_rcr_mem_cshuffle_interwave_True_True_True_True_64x64x128_2x2x1_16x16x128",
    "gemm_fp8_rcr_basic_v1_cshuffle_intrawave_False_False_False_False_64x64x128_2x2x1_32x32x16",
    "gemm_fp8_rcr_compv4_cshuffle_intrawave_True_True_True_True_64x64x128_2x2x1_32x32x32",
    "gemm_fp8_rcr_compv6_default_intrawave_True_True_True_False_64x64x128_2x2x1_32x32x64",
)

GEMMS_OF_FP32 = (
    "gemm_fp32_rcr_compv3_cshuffle_intrawave_True_True_True_True_64x64x32_2x2x1_16x16x16",
    "gemm_fp32_rrr_mem_default_interwave_True_True_True_False_32x128x32_1x4x1_16x16x4",
    "gemm_fp32_crr_comp_async_cshuffle_intrawave_True_True_True_True_64x64x32_2x2x1_16x16x16",
    "gemm_fp32_ccr_compv4_cshuffle_intrawave_True_True_True_False_64x128x32_2x2x1_16x16x16",
    "gemm_fp32_rrr_compv5_cshuffle_intrawave_False_False_False_True_64x64x32_2x2x1_16x16x16",
)
OF_GFX950 = (*FULL_GEMMS, *GEMMS_OF_FP8, *GEMMS_OF_FP32)


@pytest.mark.parametrize(
    ("arch", "name"),
    sampled(
        [*((arch, name) for name in GEMMS for arch in ARCHS), *(("gfx950", name) for name in OF_GFX950)],
        every=3,
    ),
)
def test_gemm(gpu: EmulatedGpu, arch: str, name: str) -> None:
    assert_right(gpu, arch, name)


@pytest.mark.parametrize("name", [GEMMS[1], GEMMS[5], GEMMS_OF_FP32[0]])
@pytest.mark.parametrize("arch", OLDER_GFX9)
def test_gemm_on_older_gfx9(gpu: EmulatedGpu, arch: str, name: str) -> None:
    assert_right(gpu, arch, name)


@pytest.mark.parametrize("name", GEMMS[:4:2] if POOL == "tiny" else GEMMS)
def test_gemm_with_vectors_that_are_classes(gpu_of_classes: EmulatedGpu, name: str) -> None:
    assert_right(gpu_of_classes, "sm_90", name)


@pytest.mark.parametrize("arch", ARCHS)
def test_tensors_of_more_than_2_31_bytes(gpu: EmulatedGpu, arch: str) -> None:
    """Five images of 2^25 + 1 pixels, of which every 2^20th is read; the rest is never allocated."""
    for name in (
        "forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8",
        "bwd_weight_bf16_2d_64x64x64_mem_intrawave",
    ):
        kernel = named(name)
        large = GroupedConvProblem.from_id(f"{kernel.direction}-bf16-n5-c16-k8-i1x33554433-f1x1-s1x1048576")
        small = GroupedConvProblem.from_id(f"{kernel.direction}-bf16-n5-c16-k8-i1x33-f1x1")
        assert large.bytes > 5 * 2**30  # and more than 2^31 elements
        assert gpu.kernel(kernel, arch).run_sparse(large, small) is None


@dataclass(frozen=True)
class Mistake:
    """A change of a kernel's source, and what the emulated device reports."""

    name: str
    archs: tuple[str, ...]
    header: str
    text: str
    instead: str
    said: str
    kernel: str = "forward_bf16_2d_64x64x64_compv3_intrawave"


GFX950, SM_90 = ("gfx950",), ("sm_90",)
TWO_INSTRUCTIONS = "forward_bf16_2d_64x64x64_compv3_intrawave_w2x2x1_wt16x16x32"
FP32 = "forward_fp32_2d_64x64x64_compv3_intrawave_v4x4x4"
COMP_ASYNC = "forward_bf16_2d_64x64x64_comp_async_intrawave_dsb_v8x8x8"
INTERWAVE = "forward_bf16_2d_64x64x64_basic_v1_interwave"
MISTAKES = (
    Mistake(
        *("sums of other rows", GFX950, "device.hpp", "+ lane / BM * RUN, values);"),
        *("+ (lane / BM ^ 1) * RUN, values);", "values wrong"),
    ),
    Mistake(
        *("operands of other depths", GFX950, "device.hpp", "k + lane / ROWS * PER_LANE)"),
        *("k + lane % 4 * PER_LANE)", "values wrong"),
    ),
    Mistake(
        *("a half of the depth twice", ("gfx942",), "instructions_gfx90a.hpp"),
        "mfma_16x16x16_bf16(second_half(a), second_half(b), c)",
        *("mfma_16x16x16_bf16(second_half(a), first_half(b), c)", "values wrong", TWO_INSTRUCTIONS),
    ),
    Mistake(
        *("sums of other columns", SM_90, "device.hpp", "f(m + 8, n, values[1]);\n  f(m, n + 8, values[2]);"),
        *("f(m + 8, n, values[2]);\n  f(m, n + 8, values[1]);", "values wrong"),
    ),
    Mistake(
        *("matrices in another order", SM_90, "device.hpp", "lds_index<COLS>(lane % 16, k + lane / 16 * 8)"),
        *("lds_index<COLS>(lane / 2, k + lane % 2 * 8)", "values wrong"),
    ),
    Mistake(
        *(
            "no wait",
            GFX950,
            "device.hpp",
            "s_waitcnt<0x0f70>();",
            ";",
            "a copy is still under way",
            COMP_ASYNC,
        )
    ),
    Mistake(
        *("a wait for all but one", GFX950, "device.hpp", "s_waitcnt<0x0f70>();", "s_waitcnt<0x0f71>();"),
        *("a copy is still under way", COMP_ASYNC),
    ),
    Mistake(
        *("a wait for a group less", SM_90, "pipeline.hpp", "async_wait<(STAGES > 2 ? STAGES - 2 : 0)>();"),
        *("async_wait<STAGES - 1>();", "a copy is still under way", COMP_ASYNC),
    ),
    Mistake(
        *("no commit", SM_90, "device.hpp", "{ cp_async_commit_group(); }", "{}"),
        *("a copy is still under way", COMP_ASYNC),
    ),
    Mistake(
        *("no barrier after reading", ARCHS, "pipeline.hpp"),
        "m.fetch_b(next, i + 1);\n    });\n    if constexpr (!TWO_BUFFERS) barrier();",
        *("m.fetch_b(next, i + 1);\n    });", "with no barrier in between"),
    ),
    Mistake(
        *("no barrier before shuffling", ARCHS, "epilogue.hpp", "TILE_N * STORED_UNITS;\n  barrier();"),
        *("TILE_N * STORED_UNITS;", "with no barrier in between"),
    ),
    Mistake(
        *("nothing released", GFX950, "device.hpp", "  release_lds();\n  s_barrier();", "  s_barrier();"),
        "with no barrier in between",
    ),
    Mistake(
        *("nothing acquired", GFX950, "device.hpp", "  s_barrier();\n  acquire_lds();", "  s_barrier();"),
        "with no barrier in between",
    ),
    Mistake(
        *("a barrier for some waves", ARCHS, "pipeline.hpp", "    waves_in_step();"),
        *("    if (r.wave_m == 0) waves_in_step();", "other waves", INTERWAVE),
    ),
    Mistake(
        *("lanes that part", ARCHS, "pipeline.hpp", "    waves_in_step();"),
        *("    if (thread_id() % LANES) waves_in_step();", "other lanes of its wave", INTERWAVE),
    ),
    Mistake(
        *("an image of one row more", ARCHS, "operands.hpp", "(u32)(r.h + c.h) < (u32)g.h.extent &&"),
        *("(u32)(r.h + c.h) <= (u32)g.h.extent &&", "of in0"),
    ),
    Mistake(
        *(
            "a column too many",
            ARCHS,
            "epilogue.hpp",
            "(PAD_N && n >= g.n)) return",
            "(PAD_N && n > g.n)) return",
        ),
        "which was written before",
    ),
    Mistake(
        *("a row too many", ARCHS, "epilogue.hpp", "g.whole_m() || m < g.m};", "g.whole_m() || m <= g.m};"),
        "of out",
    ),
    Mistake(
        *("a row too few", ARCHS, "epilogue.hpp", "g.whole_m() || m < g.m};", "g.whole_m() || m < g.m - 1};"),
        "unwritten), first at",
    ),
    Mistake(
        *("too little LDS", ARCHS, "config.hpp", "constexpr int LDS_BYTES = STAGES"),
        "constexpr int SHORT = 16, LDS_BYTES = STAGES * STAGE_ELEMENTS * 2 - SHORT, ALL_BYTES = STAGES",
        "of to_lds",
    ),
    Mistake(
        *(
            "vectors that are not aligned",
            ARCHS,
            "operands.hpp",
            "g.read_channels % VECTOR_A == 0 && g.read_pitch",
        ),
        *("g.read_channels % 2 == 0 && g.read_pitch % 2 == 0 || g.read_pitch", "no multiple of that"),
    ),
    # Mistakes that kernels with two-byte elements do not show.
    Mistake(
        *(
            "the upper half of an element alone",
            GFX950,
            "device.hpp",
            "u32 element(U4 v, int e) { return v[e]; }",
        ),
        *("u32 element(U4 v, int e) { return v[e] & 0xFFFF0000; }", "values wrong", FP32),
    ),
    Mistake(
        *("depths of A with others of B", GFX950, "device.hpp", "element(b, e), element(a, e)"),
        *("element(b, e), element(a, PER_LANE - 1 - e)", "values wrong", FP32),
    ),
    Mistake(
        *(
            "LDS for two bytes an element",
            GFX950,
            "config.hpp",
            "STAGE_BYTES = STAGE_ELEMENTS * ELEMENT_BYTES;",
        ),
        *("STAGE_BYTES = STAGE_ELEMENTS * 2;", "of to_lds", FP32),
    ),
    Mistake(
        *("sums rounded to 16 bits", GFX950, "epilogue.hpp", "F4{x[0], x[1], x[2], x[3]}"),
        *("F4{(float)(_Float16)x[0], x[1], x[2], x[3]}", "values wrong", FP32),
    ),
    Mistake(
        *("a tile that is not there", ARCHS, "pipeline.hpp"),
        "  m.stash(next, lds);\n  TO_ROLLED\n  for (int i = 0; i < m.count; ++i) {\n    barrier();\n    mul",
        *("  for (int i = 0; i < m.count; ++i) {\n    barrier();\n    mul", "which nobody has written"),
    ),
)


@pytest.mark.parametrize(
    ("arch", "mistake"),
    sampled(((a, m) for m in MISTAKES for a in m.archs), every=3),
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_mistakes_are_seen(gpu: EmulatedGpu, arch: str, mistake: Mistake) -> None:
    found = gpu.kernel(named(mistake.kernel), arch, {mistake.header: (mistake.text, mistake.instead)})
    problems = awkward_problems("forward", named(mistake.kernel).dtype, 2)
    said = [found.run(problem) for problem in (*problems[:4], *problems[12:14])]
    assert any(mistake.said in (text or "") for text in said), said
