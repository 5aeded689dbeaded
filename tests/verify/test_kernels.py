"""The verifier on real machine code: defects of clang's code for older kernels, fixes, and mutants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.samples import sampled, slow
from tests.verify.mutants import MUTANTS, Mutant
from tile_oracle.cli import main
from tile_oracle.compiling.builder import NOTE, REFUSE, Builder
from tile_oracle.compiling.disassembly import find_disassembler, read_assembly
from tile_oracle.compiling.source import headers_for
from tile_oracle.errors import BuildError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.verify.verifier import verify_assembly, verify_parsed

KERNELS = {
    name: parse_kernel_name(text)
    for name, text in (
        ("gemm", "gemm_bf16_rcr_compv3_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_32x32x16"),
        ("async", "grouped_conv_bwd_data_fp16_3d_16x64x128_basic_async_v1_interwave_v8x8x8"),
        (
            "two_buffers",
            "gemm_bf16_rcr_compv4_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x32",
        ),
    )
}

_BARRIER = """TO_DEVICE void s_barrier() {
  s_waitcnt<0xc07f>(); // lgkmcnt(0), nothing else
  __builtin_amdgcn_s_barrier();
}"""
_BARRIER_BEFORE = "TO_DEVICE void s_barrier() { __builtin_amdgcn_s_barrier(); }"
_COPY_BEFORE = """{
  __builtin_amdgcn_global_load_lds((TO_GLOBAL void *)from, wave_base, 16, 0, 0);
}"""


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("verified")
    with Builder("gfx950", build_dir=folder, runs_here=False, verify=NOTE) as builder:
        yield builder


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """Builds the kernels with barriers that leave the wait to the compiler, and copies by the builtin."""
    folder = tmp_path_factory.mktemp("before")
    headers_for("gfx950").write(folder / "gpu")
    header = folder / "gpu" / "instructions_gfx950.hpp"
    text = header.read_text("utf-8")
    assert _BARRIER in text
    copy = text[text.index('{\n  asm volatile("s_nop 0') :]
    copy = copy[: copy.index("\n}") + 2]
    header.write_text(text.replace(_BARRIER, _BARRIER_BEFORE).replace(copy, _COPY_BEFORE), "utf-8")
    with Builder(
        "gfx950", build_dir=folder / "cache", include=folder / "gpu", runs_here=False, verify=REFUSE
    ) as builder:
        yield builder


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_proven_to_wait(builder: Builder, name: str) -> None:
    report = builder.report(KERNELS[name])
    assert report.target == "gfx950"
    assert report.findings == report.not_proven == ()
    assert report.incomplete == ()


def test_a_wait_that_the_compiler_loses_in_a_loop_header_is_found(before: Builder) -> None:
    report = verify_assembly(before.assembly(KERNELS["gemm"]))
    assert {finding.rule for finding in report.findings} == {"barrier"}
    assert all(finding.cause.startswith("ds_write") for finding in report.findings)


def test_a_wait_that_counts_copies_to_lds_is_found(before: Builder) -> None:
    report = verify_assembly(before.assembly(KERNELS["async"]))
    assert "lgkmcnt" in {finding.rule for finding in report.findings}
    assert any(finding.cause.startswith("ds_bpermute") for finding in report.findings)


def test_a_kernel_with_a_finding_is_refused_on_request(before: Builder) -> None:
    result = before.need(KERNELS["gemm"])
    assert result.status == "build_error"
    assert "an LDS write may be outstanding at the barrier" in result.log
    assert result.toolchain.startswith("clang ")
    # The binary is in the cache; a builder without the request uses it as before.
    with Builder(
        "gfx950", build_dir=before.cache.folder, include=before.source.headers.folder, runs_here=False
    ) as asks_not:
        assert asks_not.need(KERNELS["gemm"]).status == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_kernels_for_older_gfx9_are_proven_to_wait(arch: str, tmp_path: Path) -> None:
    """And without its waits one is not."""
    kernel = KERNELS["two_buffers"]
    with Builder(arch, build_dir=tmp_path, runs_here=False, verify=NOTE) as builder:
        report = builder.report(kernel)
        text = builder.assembly(kernel)
    assert report.target == arch
    assert report.findings == ()
    assert report.incomplete == ()
    hasty = text.replace("s_waitcnt vmcnt(0)", "s_nop 0").replace("s_waitcnt lgkmcnt(0)", "s_nop 0")
    found = {finding.rule for finding in verify_assembly(hasty).findings}
    assert found >= {"vmcnt", "lgkmcnt"}


@pytest.mark.slow
def test_a_loop_that_is_unrolled_in_part_is_followed_by_its_counter(builder: Builder) -> None:
    """The steps along k of one tile: two rounds of four, and only the first fills the other buffer."""
    kernel = parse_kernel_name(
        "grouped_conv_bwd_data_fp32_3d_64x64x128_compv4_intrawave_dsb_wt16x16x16_v4x4x4"
    )
    text = builder.assembly(kernel)
    assert "s_cmp_lg_u32 s85, 0" in text
    report = verify_assembly(text)
    assert report.findings == report.not_proven == ()


@pytest.mark.parametrize(
    "name",
    [
        "gemm_bf16_rcr_compv4_cshuffle_intrawave_False_False_False_False_16x64x128_1x4x1_16x16x32",
        *slow("gemm_fp16_rrr_compv3_cshuffle_intrawave_False_False_False_False_64x64x128_2x2x1_16x16x32"),
    ],
)
def test_each_barrier_is_needed(builder: Builder, name: str) -> None:
    """Also that in front of the epilogue's exchange: a wave that is behind still reads or writes its tile."""
    lines = builder.assembly(parse_kernel_name(name)).splitlines()
    barriers = [at for at, line in enumerate(lines) if line == "\ts_barrier"]
    assert len(barriers) >= 3
    for at in barriers:
        report = verify_assembly("\n".join([*lines[:at], *lines[at + 1 :]]))
        assert {one.rule for one in report.findings} <= {"race", "barrier"}
        assert report.findings, f"barrier of line {at + 1}"


def test_only_amd_gpus_can_be_verified(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="kernels for cpu cannot be verified"):
        Builder("cpu", build_dir=tmp_path, verify=NOTE)


@pytest.mark.parametrize(
    "mutant", sampled(MUTANTS, every=3), ids=lambda mutant: f"{mutant.kernel}: {mutant.what}"
)
def test_a_mistake_is_found(builder: Builder, mutant: Mutant, texts: dict[str, list[str]]) -> None:
    kernel = KERNELS[mutant.kernel]
    if mutant.kernel not in texts:
        texts[mutant.kernel] = builder.assembly(kernel).splitlines()
    text = "\n".join(mutant.mutate(texts[mutant.kernel]))
    assert verify_assembly(text).findings


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    return {}


def test_the_command_verifies_a_pool_and_a_file(
    builder: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = ("kernels", "--op", "gemm", "--arch", "gfx950", "--dtype", "bf16", "--layout", "rcr", "--verify")
    one = f"name == '{KERNELS['gemm'].name}'"
    assert main((*pool, "--kernel-filter", one, "--build-dir", str(builder.cache.folder), "-j", "1")) == 0
    assert "1 kernel verified, 0 with findings" in capsys.readouterr().out
    text = builder.assembly(KERNELS["gemm"])
    file = tmp_path / "kernel.s"
    file.write_text(text, "utf-8")
    assert main(("kernels", "--verify", str(file))) == 0
    assert "to_conv: " in capsys.readouterr().out
    file.write_text("\n".join(MUTANTS[0].mutate(text.splitlines())), "utf-8")
    assert main(("kernels", "--verify", str(file))) == 1
    assert "[vmcnt]" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sample_of_a_pool_is_verified_and_a_seed_names_it(
    builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = ("kernels", "--op", "gemm", "--arch", "gfx950", "--dtype", "bf16", "--layout", "rcr", "--verify")
    some = ("--kernel-filter", "tile_m == 64 and tile_n == 64 and tile_k == 64 and pipeline == 'mem'")
    shared = ("--build-dir", str(builder.cache.folder), "--list", "--facts")

    def names(*more: str) -> set[str]:
        assert main((*pool, *some, *shared, *more)) == 0
        said = capsys.readouterr().out
        assert f"a sample of {more[1]} of " in said
        return set(re.findall(r"gemm_bf16_rcr_\w+", said))

    two = names("--sample", "2")
    assert len(two) == 2
    assert names("--sample", "2", "--seed", "1") == two
    assert main(("kernels", "--sample", "2")) != 0
    assert "--sample goes with --facts or --verify" in capsys.readouterr().err


def test_the_command_verifies_for_gfx950_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("kernels", "--verify", "--arch", "sm_90")) != 0
    assert "--verify is for gfx950" in capsys.readouterr().err


def test_a_code_object_needs_a_disassembler(builder: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is one, it finds what the assembly shows; else a line says what to do."""
    path = builder.need(KERNELS["gemm"]).binary
    assert path is not None
    try:
        find_disassembler("gfx950")
    except BuildError:
        assert main(("kernels", "--verify", str(path.path))) != 0
        assert "no llvm-objdump for gfx950 was found" in capsys.readouterr().err
    else:
        assert main(("kernels", "--verify", str(path.path))) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_a_code_object_has_the_findings_of_its_assembly(before: Builder, name: str) -> None:
    """Of the kernels with lost waits, too, with a disassembler of LLVM 20 or newer."""
    try:
        find_disassembler("gfx950")
    except BuildError as error:
        pytest.skip(str(error))
    kernel = KERNELS[name]
    with Builder(
        "gfx950", build_dir=before.cache.folder, include=before.source.headers.folder, runs_here=False
    ) as plain:
        binary = plain.need(kernel).binary
    said = verify_assembly(before.assembly(kernel))
    read = verify_parsed(read_assembly(binary.path))
    assert [(one.rule, one.function) for one in read.findings] == [
        (one.rule, one.function) for one in said.findings
    ]
    assert read.incomplete == ()
