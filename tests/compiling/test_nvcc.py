"""The toolchain nvcc: finding and refusing it and, if installed, its kernels compared with clang's."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.compiling.bare_machine import program
from tests.samples import sampled
from tile_oracle.commands import doctor
from tile_oracle.compiling import gpu_toolchain as module
from tile_oracle.compiling import nvcc
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import code_facts
from tile_oracle.compiling.elf import SYMBOLS, Elf
from tile_oracle.compiling.gpu_toolchain import GpuToolchain, find_gpu_toolchain
from tile_oracle.compiling.isa import isa_for
from tile_oracle.compiling.nvcc import NvccToolchain
from tile_oracle.compiling.source import headers_for, source_for
from tile_oracle.compiling.toolchain import compiler_environment, zig_folder
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.operations.gemm.kernel import parse_gemm_name

SAYS = (
    "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
    "Cuda compilation tools, release {release}, V{release}.88\nBuild cuda_{release}.r{release}/compiler.1_0"
)


def saying(path: Path, says: str) -> Path:
    return program(path, f"print({says!r})\n")


def found(name: str) -> NvccToolchain:
    toolchain = find_gpu_toolchain(name, "sm_90")
    assert isinstance(toolchain, NvccToolchain)
    return toolchain


def test_nvcc_is_found_in_cudas_folder_a_wheel_below_cuda_home_and_on_path(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saying(bare / "g++", "g++ (Debian 12.2.0-14) 12.2.0")
    with pytest.raises(BuildError, match="'nvcc' is not on this machine: install CUDA"):
        find_gpu_toolchain("nvcc", "sm_90")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "mine"))
    monkeypatch.setattr(nvcc, "_WHEELS", ("cu13",))
    monkeypatch.setattr("sys.path", [str(tmp_path / "site-packages")])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    places = ("cuda/bin/nvcc", "site-packages/nvidia/cu13/bin/nvcc", "mine/bin/nvcc", "bin/nvcc")
    for place in places:
        made = saying(tmp_path / place, SAYS.format(release="13.0"))
        importlib.invalidate_caches()
        assert found("nvcc").compiler == made
    other = saying(tmp_path / "other" / "nvcc", SAYS.format(release="12.4"))
    assert (found(str(other)).compiler, found(str(other)).identity) == (other, "nvcc 12.4.88")


def test_auto_takes_nvcc_without_clang(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saying(bare / "g++", "g++ (Debian 12.2.0-14) 12.2.0")
    saying(bare / "nvcc", SAYS.format(release="13.0"))
    assert found("auto").identity == "nvcc 13.0.88"
    with pytest.raises(BuildError, match="no compiler for gfx950 was found"):
        find_gpu_toolchain("auto", "gfx950")
    monkeypatch.setattr(module, "zig_folder", zig_folder)
    assert find_gpu_toolchain("auto", "sm_90").name == "ziglang"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("Debian clang version 19.1.7", "is not nvcc: its --version prints 'Debian clang version 19.1.7'"),
        ("", "is not nvcc: its --version prints ''"),
        (SAYS.format(release="11.8"), r"is nvcc 11.8.88: the kernels are C\+\+20, which needs 12.0"),
    ],
    ids=["clang", "nothing", "11.8"],
)
def test_programs_that_are_not_nvcc_are_refused(bare: Path, says: str, why: str) -> None:
    saying(bare / "g++", "g++ (Debian 12.2.0-14) 12.2.0")
    saying(bare / "nvcc", says)
    with pytest.raises(BuildError, match=why):
        find_gpu_toolchain("nvcc", "sm_90")


def test_without_a_host_compiler_the_message_says_so(bare: Path) -> None:
    saying(bare / "nvcc", SAYS.format(release="13.0"))
    with pytest.raises(BuildError, match=r"does not start without a host compiler: apt install g\+\+"):
        find_gpu_toolchain("nvcc", "sm_90")
    (sm_90,) = (target for target in doctor.examine_targets() if target.target == "sm_90")
    assert any("without a host compiler" in f.text for f in sm_90.findings if f.what == "nvcc")
    saying(bare / "clang++", "clang version 19.1.7")
    assert found("nvcc").host_compiler == bare / "clang++"
    saying(bare / "g++", "g++ (Debian 12.2.0-14) 12.2.0")
    assert found("nvcc").host_compiler == bare / "g++"
    (sm_90,) = (target for target in doctor.examine_targets() if target.target == "sm_90")
    assert any("--toolchain nvcc (nvcc 13.0.88)" in f.text for f in sm_90.findings)


@pytest.mark.parametrize("name", ["nvcc", "nvcc-13.0", "/usr/local/cuda/bin/nvcc"])
def test_nvcc_does_not_build_for_amd(name: str) -> None:
    with pytest.raises(BuildError, match="cannot build for AMD GPUs: pip install ziglang, or install ROCm"):
        find_gpu_toolchain(name, "gfx950")


# ---- a real one -----------------------------------------------------------------------------------------


@cache
def why_no_nvcc() -> str:
    try:
        found("nvcc")
    except BuildError as error:
        return str(error)
    return ""


real = pytest.mark.skipif("why_no_nvcc()", reason="there is no nvcc that works")

SOME = (
    "grouped_conv_forward_bf16_2d_64x128x64_compv3_intrawave",
    "grouped_conv_bwd_data_fp16_3d_16x64x128_basic_async_v1_interwave_v8x8x8",
    "grouped_conv_bwd_weight_bf16_2d_32x64x64_comp_async_intrawave_dsb_v8x8x8_epdefault_2s",
    "gemm_fp16_rrr_mem_default_interwave_True_True_True_False_64x64x64_2x2x1_16x16x16",
)


def named(name: str) -> Kernel:
    return parse_gemm_name(name) if name.startswith("gemm_") else parse_kernel_name(name)


@cache
def made(toolchain: GpuToolchain | NvccToolchain, source: str) -> tuple[str, bytes]:
    """The PTX and, with ptxas, the cubin of a translation unit, compiled as by the builder."""
    with TemporaryDirectory() as folder:
        work = Path(folder)
        toolchain.prepare(work)
        headers_for("sm_90").write(work / "include")
        (work / "kernel.cu").write_text(source)
        output = "kernel" + toolchain.suffix
        for command in toolchain.commands(
            "kernel.cu", output, toolchain.flags("sm_90", isa_for("sm_90", "native"))
        ):
            done = subprocess.run(
                command, cwd=work, env=compiler_environment(work), capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stdout + done.stderr) == (0, "")
        return (work / "kernel.ptx").read_text(), (work / output).read_bytes()


def of_nvcc(source: str) -> tuple[str, bytes]:
    return made(found("nvcc"), source)


def ptx_of_clang(source: str) -> str:
    toolchain = find_gpu_toolchain("ziglang", "sm_90")
    assert isinstance(toolchain, GpuToolchain)
    return made(replace(toolchain, ptxas=None, suffix=".ptx"), source)[0]


def visible(ptx: str) -> set[str]:
    """What a module exports to the host: kernels, and variables with their contents."""
    return {" ".join(line.split()) for line in re.findall(r"^\.visible ([^(\n]*)", ptx, re.MULTILINE)}


def global_symbols(cubin: bytes) -> set[str]:
    """Names of the symbols that a cubin defines and that are not local."""
    return {symbol.name for symbol in Elf(cubin).symbols(SYMBOLS) if symbol.binding == 1 and symbol.section}


def count(ptx: str, instruction: str) -> int:
    return len(re.findall(rf"\b{re.escape(instruction)}\b", ptx))


@real
@pytest.mark.parametrize("name", sampled(SOME, every=4))
def test_its_kernels_do_what_clangs_do_and_state_their_memory(name: str) -> None:
    source = source_for(named(name), "sm_90")
    ptx, cubin = of_nvcc(source)
    clangs = ptx_of_clang(source)
    # Name, alignment and every byte of to_launch_info; the kernels.
    assert visible(ptx) == visible(clangs)
    kernels = {"to_conv", "to_finish"} if name.endswith("_2s") else {"to_conv"}
    assert global_symbols(cubin) == {*kernels, "to_launch_info"}
    dtype = "bf16" if "_bf16_" in name else "f16"
    for instruction in (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
    ):
        assert count(ptx, instruction) == count(clangs, instruction), instruction
    assert ("cp.async.cg.shared.global" in ptx) == ("async" in name)
    assert "bar.sync" in ptx
    # An access through a generic address, or to an array in local memory, is slow.
    ptx, _ = of_nvcc(source_for(named(name), "sm_90"))
    accesses = re.findall(r"^\s+(?:@!?%p\d+ )?((?:ld|st)\.[\w.]+)", ptx, re.MULTILINE)
    assert len(accesses) > 10
    assert {access.split(".")[1] for access in accesses} <= {"global", "shared", "param"}
    assert re.search(r"(ld|st)\.global\.v4|cp\.async\.cg", ptx), "16 bytes at once"
    variables = re.findall(r"^(?:\.\w+ )*\.align \d+ \.b8 ([\w$]+)\[", ptx, re.MULTILINE)
    assert set(variables) == {"to_launch_info", "to_lds"}, "no initial values that are copied from memory"


@real
def test_a_builder_builds_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that nvcc would read from the environment have no effect."""
    kernel = named(SOME[0])
    for name, value in {
        "NVCC_APPEND_FLAGS": "--no-such-option",
        "NVCC_PREPEND_FLAGS": "-DTO_LAYOUT=1",
        "NVCC_CCBIN": "no-such-compiler",
        "CPATH": str(tmp_path / "hostile"),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "cuda_runtime.h").write_text("#error hostile\n")
    with Builder("sm_90", toolchain="nvcc", build_dir=tmp_path / "cache") as builder:
        result = builder.need(kernel)
    assert result.binary is not None, result.log
    assert result.binary.path.suffix == ".cubin"
    assert re.fullmatch(r"nvcc \d+\.\d+\.\d+", result.binary.toolchain)
    # Compiled in another folder: a binary contains no folder names, times or random values.
    assert result.binary.path.read_bytes() == of_nvcc(source_for(kernel, "sm_90"))[1]
    facts = code_facts(result.binary.path, "sm_90")
    assert 100 < facts.vgprs <= 255
    assert (facts.spills, facts.loop_matrix_instructions) == (0, 64)
    tiles_bytes, rows_bytes, reserved_bytes = (64 + 128) * 64 * 2, 64 * 24, 1024
    assert facts.lds_bytes == tiles_bytes + rows_bytes + reserved_bytes
