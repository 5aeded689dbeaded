"""The GPU kernels compiled for gfx950 and sm_90, and properties of the assembly. Nothing is run."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.pools import kernel_pool
from tests.samples import sampled
from tile_oracle.arch import load_arch
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain
from tile_oracle.compiling.isa import isa_for
from tile_oracle.compiling.source import source_for
from tile_oracle.compiling.toolchain import compiler_environment
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operations.gemm.kernel import parse_gemm_name
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

HEADERS = data_folder("kernels") / "gpu"
ARCHS = ("gfx950", "sm_90")

SOME = (
    "forward_bf16_2d_64x128x64_compv3_intrawave",
    "forward_fp16_2d_128x128x64_compv4_intrawave_dsb",
    "forward_bf16_3d_128x64x128_mem_interwave",
    "forward_bf16_2d_16x64x64_basic_v1_interwave_dsb_si",
    "forward_bf16_2d_32x128x64_comp_async_intrawave_dsb_v8x8x8",
    "forward_bf16_2d_64x64x64_compv6_intrawave_v8x8x8_gm8",
    "bwd_data_bf16_3d_64x128x64_compv3_intrawave_dsb",
    "bwd_data_fp16_2d_64x64x128_basic_async_v1_intrawave_v8x8x8",
    "bwd_weight_bf16_2d_64x128x64_compv5_intrawave_dsb_2s",
    "bwd_weight_fp16_3d_128x64x128_compv6_intrawave",
    "bwd_weight_bf16_2d_64x64x64_comp_async_intrawave_dsb_v8x8x8_epdefault_2s",
)
FP32 = (
    "forward_fp32_2d_64x128x32_compv3_intrawave_w2x2x1_wt16x16x16_v4x4x4",
    "forward_fp32_2d_32x128x32_comp_async_intrawave_dsb_w1x4x1_wt16x16x16_v4x4x4",
    "bwd_data_fp32_3d_64x64x64_mem_interwave_v4x4x4",
    "bwd_weight_fp32_2d_64x64x32_compv5_intrawave_dsb_w4x1x1_wt16x16x4_v4x4x4_2s",
    "bwd_weight_fp32_3d_64x64x32_comp_async_intrawave_dsb_w4x1x1_wt16x16x16_v4x4x4_epdefault",
)
SIXTEEN = (
    "forward_bf16_2d_16x64x64_compv3_intrawave_w4x1x1_wt4x64x16",
    "bwd_data_fp16_3d_64x16x64_mem_intrawave_w1x4x1_wt64x4x16_v4x4x8",
)


def kernel(name: str) -> GroupedConvKernel:
    return parse_kernel_name(f"grouped_conv_{name}")


def compile_text(source: str, arch: str) -> subprocess.CompletedProcess[str]:
    """Assembly (gfx950) or PTX (sm_90) on stdout, or the compiler's message on stderr."""
    toolchain = find_gpu_toolchain("ziglang", arch)
    with TemporaryDirectory() as folder:
        work = Path(folder)
        toolchain.prepare(work)
        (work / "kernel.src").write_text(source)
        command = [
            *toolchain.compiler,
            *toolchain.flags(arch, isa_for(arch, "native")),
            "-resource-dir",
            "resource",
            "-nostdlibinc",
        ]
        done = subprocess.run(
            [*command, "-I", str(HEADERS), "-S", "kernel.src", "-o", "kernel.s"],
            cwd=work,
            env=compiler_environment(work),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        text = (work / "kernel.s").read_text() if done.returncode == 0 else ""
    return subprocess.CompletedProcess(done.args, done.returncode, text, done.stderr)


@cache
def assembly(which: Kernel, arch: str) -> str:
    done = compile_text(source_for(which, arch), arch)
    assert done.returncode == 0, f"{which.name} for {arch}: {done.stderr[:2000]}"
    assert done.stderr == "", done.stderr
    return done.stdout


def numbers(text: str, key: str) -> list[int]:
    return [int(number) for number in re.findall(rf"\.{key}:\s+(\d+)", text)]


def code(text: str) -> list[str]:
    """Only the instructions: launch information and other data differ anyway."""
    lines = [line for line in text.splitlines() if re.match(r"\s+(@%p\d+ )?[a-z]+[._][a-z0-9._]+\s", line)]
    assert len(lines) > 500
    return lines


@pytest.mark.parametrize("name", sampled([*SOME, *SIXTEEN, *FP32], every=2))
def test_gfx950_kernels_spill_nothing_and_fit_into_lds(name: str) -> None:
    which = kernel(name)
    text = assembly(which, "gfx950")
    entries = 2 if which.two_stage else 1
    for key in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size"):
        assert numbers(text, key) == [0] * entries, key
    lds_bytes = numbers(text, "group_segment_fixed_size")
    arch = load_arch("gfx950")
    assert len(lds_bytes) == entries
    assert arch.lds_bytes(which) <= max(lds_bytes) <= arch.lds_limit_bytes
    assert max(numbers(text, "max_flat_workgroup_size")) == max(
        arch.workgroup_threads(which), 256 * which.two_stage
    )
    dtype = {"bf16": "bf16", "fp16": "f16", "fp32": "f32"}[which.dtype]
    shape = "4x4x4_16b" if name in SIXTEEN else "x".join(map(str, which.warp_tile))
    if name in FP32:
        shape = "16x16x4"
        assert "global_load_dwordx4" in text or "async" in which.pipeline
        assert "global_store_dwordx4" in text
    assert set(re.findall(r"v_mfma_\w+", text)) == {f"v_mfma_f32_{shape}_{dtype}"}
    assert ("global_load_lds_dwordx4" in text) == ("async" in which.pipeline)


OF_OLDER_GFX9 = (
    ("forward_bf16_2d_64x128x64_compv3_intrawave", "32x32x8_bf16", "32x32x8bf16_1k"),
    ("bwd_data_fp16_2d_64x64x64_mem_interwave_w2x2x1_wt16x16x32_v8x8x8", "16x16x16_f16", "16x16x16f16"),
    ("bwd_weight_bf16_3d_32x64x64_compv6_intrawave_2s", "16x16x16_bf16", "16x16x16bf16_1k"),
    ("forward_fp32_2d_64x64x32_compv5_intrawave_w4x1x1_wt16x16x16_v4x4x4", "16x16x4_f32", "16x16x4f32"),
    ("bwd_data_bf16_3d_64x16x64_mem_intrawave_w1x4x1_wt64x4x16_v4x4x8", "4x4x4_16b_bf16", "4x4x4bf16_1k"),
)
"""Kernel, and the one matrix instruction in its code, as the two architectures name it."""


@pytest.mark.parametrize(("name", "on_gfx942", "on_gfx90a"), sampled(OF_OLDER_GFX9, every=3))
@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_older_gfx9_multiplies_with_its_own_instructions(
    arch: str, name: str, on_gfx942: str, on_gfx90a: str
) -> None:
    which = kernel(name)
    assert load_arch(arch).refusal(which) is None
    text = assembly(which, arch)
    for key in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size"):
        assert set(numbers(text, key)) == {0}, key
    assert max(numbers(text, "group_segment_fixed_size")) <= load_arch(arch).lds_limit_bytes == 65536
    wanted = on_gfx942 if arch == "gfx942" else on_gfx90a
    assert set(re.findall(r"v_mfma_\w+", text)) == {f"v_mfma_f32_{wanted}"}
    assert "_lds_dword" not in text


@pytest.mark.parametrize("name", sampled(SOME, every=2))
def test_sm_90_kernels_use_the_matrix_unit_and_wide_moves(name: str) -> None:
    which = kernel(name)
    text = assembly(which, "sm_90")
    dtype = {"bf16": "bf16", "fp16": "f16"}[which.dtype]
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32" in text
    transposed = "ldmatrix.sync.aligned.m8n8.x4.trans" in text
    assert transposed == (which.direction != "forward")
    assert ("cp.async.cg.shared.global" in text) == ("async" in which.pipeline)
    assert re.search(r"ld\.global(\.\w+)*\.v4|cp\.async\.cg", text), "16-byte loads"
    assert ".local" not in text, "an array went to local memory"
    assert text.count(".entry") == 1 + which.two_stage


GEMMS = (
    "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_True_128x128x64_2x2x1_32x32x16",
    "gemm_fp16_rrr_mem_default_interwave_True_True_True_False_64x64x64_2x2x1_16x16x16",
    "gemm_bf16_crr_comp_async_cshuffle_intrawave_False_False_False_True_64x128x64_2x2x1_32x32x16",
    "gemm_fp16_ccr_compv4_cshuffle_intrawave_True_True_True_False_128x64x64_2x2x1_32x32x16",
)
GEMMS_OF_FP32 = (
    "gemm_fp32_rcr_compv3_cshuffle_intrawave_True_True_True_True_128x128x32_2x2x1_16x16x16",
    "gemm_fp32_crr_comp_async_default_intrawave_True_True_True_False_64x128x32_2x2x1_16x16x16",
)
GEMMS_OF_FP8 = {
    f"gemm_fp8_rcr_{rest}": instruction
    for rest, instruction in (
        ("compv3_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_16x16x64", "16x16x32_fp8_fp8"),
        ("mem_cshuffle_interwave_True_True_True_True_128x128x128_2x2x1_32x32x32", "32x32x16_fp8_fp8"),
        ("compv4_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_16x16x128", "16x16x128_f8f6f4"),
        ("comp_async_default_intrawave_True_True_True_False_128x64x128_2x2x1_32x32x64", "32x32x64_f8f6f4"),
    )
}


@pytest.mark.parametrize("name", sampled([*GEMMS, *GEMMS_OF_FP8, *GEMMS_OF_FP32], every=2))
def test_gemms_for_gfx950_spill_nothing(name: str) -> None:
    which = parse_gemm_name(name)
    assert load_arch("gfx950").refusal(which) is None
    text = assembly(which, "gfx950")
    for key in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size"):
        assert numbers(text, key) == [0], key
    dtype = {"bf16": "bf16", "fp16": "f16"}.get(which.dtype, "")
    shape = GEMMS_OF_FP8.get(name) or f"{'x'.join(map(str, which.warp_tile))}_{dtype}"
    if name in GEMMS_OF_FP32:
        shape = "16x16x4_f32"
    assert f"v_mfma_f32_{shape}" in text
    assert "v_mfma_scale" not in text


@pytest.mark.parametrize("name", GEMMS)
def test_gemms_for_sm_90_use_the_matrix_unit(name: str) -> None:
    which = parse_gemm_name(name)
    assert load_arch("sm_90").refusal(which) is None
    text = assembly(which, "sm_90")
    assert "mma.sync.aligned.m16n8k16.row.col.f32." in text
    turned = "ldmatrix.sync.aligned.m8n8.x4.trans" in text
    assert turned == (which.layout != "rcr")
    assert ".local" not in text


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"split_image": True}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"num_groups_to_merge": 2}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"explicit_gemm": True}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"double_smem_buffer": True}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"epilogue": "default"}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"vector_a": 4}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"vector_b": 4}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"vector_c": 4}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"pad_m": False}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"pad_n": False}),
        ("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"pad_k": False}),
        ("bwd_data_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"pad_m": False}),
        ("bwd_data_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"num_groups_to_merge": 2}),
        ("bwd_weight_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"num_groups_to_merge": 2}),
        ("bwd_weight_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", {"two_stage": True}),
        ("forward_bf16_2d_64x64x64_basic_v1_intrawave_v8x8x8", {"scheduler": "interwave"}),
        ("forward_bf16_2d_64x64x64_mem_intrawave_v8x8x8", {"scheduler": "interwave"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value.split("_2d_")[0],
)
def test_every_option_changes_the_code(name: str, change: dict[str, Any], arch: str) -> None:
    base = kernel(name)
    changed = replace(base, **change)
    assert load_arch(arch).refusal(base) is None
    assert code(assembly(base, arch)) != code(assembly(changed, arch))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"warp_tile_m": 64, "warp_tile_n": 8, "tile_m": 256}, "the matrix unit's blocks are"),
        (
            {"dtype": "fp32", "vector_a": 4, "vector_b": 4, "vector_c": 4, "warp_tile_k": 32},
            "blocks of fp32 are",
        ),
        ({"dtype": "fp32", "vector_b": 4, "vector_c": 4}, "a load or store moves at most 16 bytes"),
        ({"wave_k": 2}, "waves along k are not written"),
        ({"pipeline": "compv4"}, "this pipeline needs two buffers"),
        ({"direction": "bwd_data", "split_image": True}, "split_image is for forward"),
        (
            {"tile_k": 72, "warp_tile_k": 8, "warp_tile_m": 32, "warp_tile_n": 32, "tile_m": 128},
            "in whole vectors",
        ),
    ],
    ids=["warp tile", "warp tile of fp32", "vectors of fp32", "wave_k", "compv4", "split_image", "tile_k"],
)
def test_unimplemented_options_do_not_compile_and_say_why(change: dict[str, Any], reason: str) -> None:
    wrong = replace(kernel("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8"), **change)
    done = compile_text(source_for(wrong, "gfx950"), "gfx950")
    assert done.returncode != 0
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": "fp32"}, "dtype: sm_90 has kernels for bf16, fp16, not for fp32"),
        ({"pipeline": "compv4"}, "double_smem_buffer: compv4 on sm_90 has two buffers"),
        ({"direction": "bwd_data", "split_image": True}, "split_image: sm_90 has no bwd_data kernels"),
        ({"warp_tile_m": 4, "warp_tile_n": 64}, "warp tile"),
        ({"tile_m": 128, "tile_n": 128, "wave_m": 2, "wave_n": 2, "pipeline": "compv6"}, "registers: 128"),
        ({"tile_m": 128, "tile_n": 256, "wave_m": 2, "wave_n": 2, "pipeline": "basic_v1"}, "registers: 256"),
    ],
)
def test_sm_90_refuses_unimplemented_options(change: dict[str, Any], reason: str) -> None:
    wrong = replace(kernel("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8"), **change)
    assert any(reason in said for said in load_arch("sm_90").refusals(wrong))


def test_sm_90_allows_kernels_with_enough_registers() -> None:
    """Sums of 64x64 a warp: with half the depth in flight, and where copies pass no registers."""
    which = kernel("forward_bf16_2d_128x128x32_compv3_intrawave_w2x2x1_wt32x32x16_v8x8x8")
    assert load_arch("sm_90").refusal(which) is None
    deeper = replace(which, tile_k=64)
    assert "registers" in str(load_arch("sm_90").refusal(deeper))
    for pipeline, buffers in (("basic_v1", False), ("comp_async", True)):
        assert (
            load_arch("sm_90").refusal(replace(deeper, pipeline=pipeline, double_smem_buffer=buffers)) is None
        )


@pytest.mark.parametrize("direction", ["forward", "bwd_data", "bwd_weight"])
def test_the_default_pool_of_sm_90_has_every_published_tile_and_pipeline(direction: str) -> None:
    pool = kernel_pool(direction, "bf16", 3, "sm_90")
    assert {"16x64x64", "128x64x128"} < {"x".join(map(str, which.tile)) for which in pool}
    assert {which.pipeline for which in pool} == set(load_arch("sm_90").pipelines("grouped_conv"))
    assert any(which.two_stage for which in pool) == (direction == "bwd_weight")
