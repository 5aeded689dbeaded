from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compiling.small_family import make_kernel
from tile_oracle.arch import load_arch
from tile_oracle.compiling import source
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import code_facts
from tile_oracle.compiling.source import ABI_VERSION, gpu_code_refusal, headers_for, read_headers, source_for
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.files.data_files import data_folder
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.gemm import gpu_source
from tile_oracle.operations.gemm.kernel import parse_gemm_name


def test_a_translation_unit_describes_the_kernel() -> None:
    kernel = make_kernel(48, direction="bwd_weight", dtype="fp32", ndim=3, pipeline="compv4")
    assert source_for(kernel, "cpu") == (
        "#define TO_DIRECTION TO_BWD_WEIGHT\n"
        "#define TO_DTYPE TO_FP32\n"
        "#define TO_NDIM 3\n"
        "#define TO_TILE_M 48\n"
        "#define TO_TILE_N 64\n"
        "#define TO_TILE_K 64\n"
        "#define TO_MICRO_M 6\n"
        "#define TO_MICRO_N 16\n"
        "#define TO_PIPELINE TO_PACK_AB_DOUBLE\n"
        '#include "grouped_conv.hpp"\n'
    )


def test_kernels_and_architectures_without_code_are_refused() -> None:
    with pytest.raises(KernelError, match=r"'compv6' has no code for cpu: it has basic_v1"):
        source_for(make_kernel(pipeline="compv6"), "cpu")
    with pytest.raises(BuildError, match=r"'../../etc'; known are cpu"):
        source_for(make_kernel(), "../../etc")
    with pytest.raises(BuildError, match="known are cpu"):
        headers_for("../../etc")
    with pytest.raises(BuildError, match="'gfx1250': kernels/gpu lacks its matrix instructions"):
        source_for(make_kernel(), "gfx1250")


def test_the_abi_version_is_that_of_the_header() -> None:
    text = (data_folder("kernels") / "cpu" / "abi.h").read_text()
    assert re.findall(r"#define TILE_ORACLE_ABI_VERSION (\d+)", text) == [str(ABI_VERSION)]


_OLDER = {"gfx942", "gfx90a"}


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("gfx950", {"gfx950", *_OLDER}),
        ("gfx90a", _OLDER),
        ("sm90", {"sm_90"}),
        (None, {"gfx950", "sm_90", *_OLDER}),
    ],
)
def test_instructions_of_another_architecture_do_not_change_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str | None, changed: set[str]
) -> None:
    before = {arch: headers_for(arch).digest for arch in ("gfx950", "gfx942", "gfx90a", "sm_90")}
    shutil.copytree(data_folder("kernels"), tmp_path / "kernels")
    file = tmp_path / "kernels" / "gpu" / (f"instructions_{edited}.hpp" if edited else "tiles.hpp")
    file.write_text(file.read_text() + "// more\n")
    monkeypatch.setattr(source, "data_folder", tmp_path.joinpath)
    assert {arch for arch in before if headers_for(arch).digest != before[arch]} == changed


def test_the_digest_covers_headers_names_and_places_only(include: Path) -> None:
    seen = [read_headers(include).digest]
    for change in (
        lambda: (include / "grouped_conv.hpp").open("a").write("// more\n"),
        lambda: (include / "extra.hpp").write_text("a"),
        lambda: (include / "extra.hpp").rename(include / "other.hpp"),
        lambda: (include / "deep").mkdir(),
        lambda: (include / "other.hpp").rename(include / "deep" / "other.hpp"),
    ):
        change()
        seen.append(read_headers(include).digest)
    assert len(set(seen[:4])) == 4
    assert seen[4] == seen[3]  # an empty folder is no header
    assert seen[5] not in seen[:5]
    before = read_headers(include).digest
    (include / ".grouped_conv.hpp.swp.hpp").write_text("x")
    (include / "README.md").write_text("x")
    assert read_headers(include).digest == before


def test_headers_are_written_as_they_were_read(include: Path, tmp_path: Path) -> None:
    (include / "deep").mkdir()
    (include / "deep" / "part.inc").write_bytes(b"\xff\x00")
    headers = read_headers(include)
    (include / "deep" / "part.inc").write_bytes(b"edited")
    headers.write(tmp_path / "copy")
    assert (tmp_path / "copy" / "deep" / "part.inc").read_bytes() == b"\xff\x00"
    assert (tmp_path / "copy" / "abi.h").read_bytes() == (include / "abi.h").read_bytes()


def test_a_folder_without_headers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="missing"):
        read_headers(tmp_path / "nothing")
    with pytest.raises(BuildError, match="holds no header"):
        read_headers(tmp_path)


LARGE_GEMM = "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_False_256x256x64_2x2x1_32x32x16"
LARGE_IN_MEM = LARGE_GEMM.replace("compv3", "mem")
TOO_LARGE = (
    LARGE_GEMM.replace("rcr", "rrr"),
    LARGE_GEMM.replace("compv3", "compv4"),
    LARGE_IN_MEM,
    LARGE_IN_MEM.replace("256x256x64", "256x128x128").replace("intra", "inter"),
    LARGE_GEMM.replace("True_False", "True_True"),
)
FITTING = (
    LARGE_GEMM,
    LARGE_GEMM.replace("rcr", "crr").replace("256x256x64", "128x256x64"),
    LARGE_IN_MEM.replace("256x256x64", "256x128x128"),
    LARGE_GEMM.replace("256x256x64_2x2x1", "256x128x64_4x4x1"),
)


def test_a_gemm_that_needs_too_many_registers_is_refused() -> None:
    reasons = {text: gpu_code_refusal(parse_gemm_name(text), "gfx950") for text in (*TOO_LARGE, *FITTING)}
    assert all(str(reasons[text]).startswith("registers: ") for text in TOO_LARGE)
    assert "256 for accumulators and 128 for prefetched tiles exceed the 320" in str(reasons[LARGE_IN_MEM])
    assert all(reasons[text] is None for text in FITTING)


@pytest.mark.slow
def test_the_compiler_spills_those_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_source, "_too_many_registers", lambda *_: None)
    with Builder("gfx950", build_dir=tmp_path, runs_here=False) as builder:
        for text in (*TOO_LARGE, *FITTING):
            built = builder.submit(parse_gemm_name(text)).result()
            assert built.binary is not None, built.log[-500:]
            facts = code_facts(built.binary.path, "gfx950")
            assert bool(facts.spills) == (text in TOO_LARGE), text


def test_lds_counts_the_table_of_rows_and_what_cshuffle_exchanges() -> None:
    """Tiles that fill LDS to the last byte leave no room for the table that forward and bwd_data keep."""
    full = (
        "grouped_conv_forward_fp32_3d_32x128x128_compv3_intrawave_dsb_si_w2x2x1_wt16x16x16_v4x4x4",
        "grouped_conv_forward_bf16_3d_256x64x128_basic_async_v1_interwave_dsb_w4x1x1_wt32x32x16_v8x8x8",
    )
    reasons = [gpu_code_refusal(parse_kernel_name(text), "gfx950") for text in full]
    assert reasons == [
        "LDS: 163,840 bytes for tiles and 512 for the table of rows exceed the 163,840 of gfx950",
        "LDS: 163,840 bytes for tiles and 6,144 for the table of rows exceed the 163,840 of gfx950",
    ]
    weights = full[1].replace("forward", "bwd_weight")
    assert gpu_code_refusal(parse_kernel_name(weights), "gfx950") is None
    assert gpu_code_refusal(parse_kernel_name(full[1].replace("256x64x128", "256x64x64")), "gfx950") is None
    # gfx942 and gfx90a have 64 KiB: the exchange of a result can need more than its tiles.
    conv = parse_kernel_name(
        "grouped_conv_forward_bf16_2d_128x256x32_compv3_intrawave_w2x2x1_wt32x32x16_v8x8x8"
    )
    gemm = parse_gemm_name(
        "gemm_bf16_rcr_compv3_cshuffle_intrawave_True_True_True_False_256x256x32_2x2x1_32x32x16"
    )
    for arch in ("gfx942", "gfx90a"):
        assert gpu_code_refusal(conv, arch) == (
            "LDS: 65,536 bytes for the exchange of cshuffle and 3,072 for the table of rows exceed "
            f"the 65,536 of {arch}"
        )
        assert gpu_code_refusal(gemm, arch) == (
            f"LDS: 131,072 bytes for the exchange of cshuffle exceed the 65,536 of {arch}"
        )
        assert gpu_code_refusal(replace(conv, epilogue="default"), arch) is None
    assert gpu_code_refusal(conv, "gfx950") is gpu_code_refusal(gemm, "gfx950") is None


def test_fp8_needs_a_matrix_unit_that_reads_the_format_of_the_operands() -> None:
    kernel = parse_gemm_name(
        "gemm_fp8_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_16x16x32"
    )
    assert gpu_code_refusal(kernel, "gfx950") is None
    assert "its matrix unit reads e4m3 as fnuz" in str(gpu_code_refusal(kernel, "gfx942"))
    assert "states no fp8 format" in str(gpu_code_refusal(kernel, "gfx90a"))
    assert "not for fp8" in str(load_arch("gfx90a").refusal(kernel))
