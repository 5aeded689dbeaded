"""`tile-oracle pool list --facts`: tables and verdicts over real binaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.arch import load_arch
from tile_oracle.cli import main
from tile_oracle.commands.kernel_code import KernelFacts, fact_rows, find_facts, find_offenders
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import CodeFacts
from tile_oracle.kernel import parse_kernel_name

KIND = ("kernels", "--arch", "gfx950", "--dtype", "bf16", "--direction", "forward", "--ndim", "2")
TWO = "tile_m == 16 and tile_k == 64 and pipeline == 'compv4' and not split_image"
KERNEL = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_mem_intrawave_dsb")
GFX950 = load_arch("gfx950")
GOOD = CodeFacts(128, 0, 60, 34_304, 0, 0, 4, 16, 16)


def test_a_table_a_verdict_and_compiled_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (*KIND, "--facts", "--kernel-filter", TWO, "--build-dir", str(tmp_path), "-j", "1")
    assert main(arguments) == 0
    heading, row, _, verdict = capsys.readouterr().out.splitlines()
    assert heading.startswith("VGPRs")
    assert heading.endswith("  kernel")
    assert row.endswith("  grouped_conv_forward_bf16_2d_16x64x64_compv4_intrawave_dsb")
    assert verdict.startswith("1 kernel for gfx950, 0 of which spill")
    assert "1 compiled, 0 from the cache" in verdict
    assert main(arguments) == 0
    _, row, _, verdict = capsys.readouterr().out.splitlines()
    assert "0 compiled, 1 from the cache" in verdict


@pytest.mark.slow
def test_it_needs_a_gpu_to_compile_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("kernels", "--facts")) != 0
    assert "--facts compiles for one architecture" in capsys.readouterr().err
    assert main(("kernels", "--facts", "--arch", "cpu")) != 0
    assert "--facts is for GPUs" in capsys.readouterr().err


def test_kernels_without_code_are_counted_and_no_offence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gemm = ("kernels", "--op", "gemm", "--arch", "gfx950", "--dtype", "bf16", "--layout", "rrr", "--facts")
    tile = "tile_k == 64 and tile_m == 256 and pipeline == 'compv4' and pad_m and not persistent"
    arguments = (*gemm, "--build-dir", str(tmp_path), "-j", "1", "--kernel-filter")
    assert main((*arguments, f"{tile} and tile_n >= 128")) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-2].startswith("1 kernel for gfx950, 0 of which spill")
    why = "registers: 256 for accumulators and 64 for prefetched tiles"
    assert told[-1].startswith(f"1 more has no code: {why}")
    assert main((*arguments, f"{tile} and tile_n == 256")) != 0
    assert "no kernel for gfx950 to compile: none has code: registers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("facts", "size", "reason"),
    [
        (CodeFacts(**{**vars(GOOD), "spills": 3}), 9, "spills 3 registers"),
        (CodeFacts(**{**vars(GOOD), "scratch_bytes": 16}), 9, "keeps 16 bytes a work-item in scratch memory"),
        (CodeFacts(**{**vars(GOOD), "lds_bytes": 170_000}), 9, "needs 170,000 bytes of LDS"),
        (CodeFacts(**{**vars(GOOD), "workgroups_per_cu": 0}), 9, "does not fit on a compute unit"),
        (CodeFacts(), 0, "does not compile: the log"),
    ],
)
def test_kernels_that_the_rules_should_have_refused(facts: CodeFacts, size: int, reason: str) -> None:
    found = [KernelFacts(KERNEL, 9, GOOD, ""), KernelFacts(KERNEL, size, facts, "the log")]
    ((bad, said),) = find_offenders(found, GFX950)
    assert bad is found[1]
    assert reason in said


@pytest.mark.parametrize(
    ("name", "instructions"),
    [
        ("grouped_conv_forward_bf16_2d_64x128x64_basic_v1_intrawave", 1 * 2 * 4),
        ("grouped_conv_forward_bf16_2d_16x64x64_basic_v1_intrawave_w4x1x1_wt4x64x16", 1 * 1 * 4 * 4),
        ("grouped_conv_forward_fp32_2d_64x128x32_basic_v1_intrawave_w2x2x1_wt16x16x16_v4x4x4", 2 * 4 * 2 * 4),
        ("grouped_conv_forward_fp32_2d_64x128x32_basic_v1_intrawave_w2x2x1_wt16x16x4_v4x4x4", 2 * 4 * 8),
        ("gemm_fp8_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_32x32x32", 4 * 2),
        ("gemm_fp8_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_32x32x64", 2),
    ],
)
def test_matrix_instructions_of_the_main_loop(name: str, instructions: int, tmp_path: Path) -> None:
    """The main loop is one step of tile_k here."""
    with Builder("gfx950", build_dir=tmp_path) as builder:
        (found,) = find_facts(builder, [parse_kernel_name(name)])
    assert found.facts.loop_matrix_instructions == instructions


def test_a_row_for_each_kernel_and_columns_that_say_nothing() -> None:
    found = [
        KernelFacts(KERNEL, 10_240, GOOD, ""),
        KernelFacts(KERNEL, 20_480, CodeFacts(**{**vars(GOOD), "vgprs": 90, "agprs": None}), ""),
        KernelFacts(KERNEL, 0, CodeFacts(), "no"),
    ]
    headings, *rows = fact_rows(found, GFX950)
    first, second, failed = (dict(zip(headings, row, strict=True)) for row in rows)
    assert (first["VGPRs"], second["VGPRs"], second["of these AGPRs"]) == ("128", "90", "-")
    assert (first["waves/SIMD"], first["matrix instr. in loop"], first["binary KiB"]) == ("4", "16", "10")
    assert {name: value for name, value in failed.items() if value != "-"} == {"kernel": KERNEL.name}
    only_ptx = fact_rows([KernelFacts(KERNEL, 1, CodeFacts(loop_matrix_instructions=17), "")], GFX950)
    row = dict(zip(*only_ptx, strict=True))
    assert row["matrix instr. in loop"] == "17"
    assert "VGPRs" not in row


@pytest.mark.slow
def test_the_verifier_takes_a_file_of_kernels_for_amd_gpus_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--kernels", "triton", "--arch", "sm_90", "--verify"]) != 0
    assert "--verify is for gfx950, gfx942, gfx90a" in capsys.readouterr().err
