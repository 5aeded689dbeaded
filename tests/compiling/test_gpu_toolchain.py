"""Compilers for GPUs: found, refused, and real kernels built with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiling.bare_machine import program
from tests.samples import sampled, slow
from tile_oracle.compiling import gpu_toolchain as module
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain
from tile_oracle.compiling.source import source_for, source_suffix
from tile_oracle.compiling.toolchain import zig_folder
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

KERNEL = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_basic_v1_interwave")


def wrapped_clang(path: Path, says: str) -> Path:
    """A clang with its own headers and linker, like ROCm's: the wheel's clang in disguise."""
    wheel = zig_folder()
    assert wheel is not None
    folder = path.parent.parent / "wheel"
    (folder / "resource").mkdir(parents=True)
    (folder / "resource" / "include").symlink_to(wheel / "lib" / "include")
    program(
        folder / "lld",
        f"import os, sys\nos.execv({str(wheel / 'zig')!r}, ['zig', 'ld.lld', *sys.argv[3:]])\n",
    )
    return program(
        path,
        f"import os, sys\nif '--version' in sys.argv:\n    print({says!r})\n    sys.exit()\n"
        f"os.execv({str(wheel / 'zig')!r}, ['zig', 'clang', '-resource-dir', {str(folder / 'resource')!r}, "
        f"'-B', {str(folder)!r}, *sys.argv[1:]])\n",
    )


@pytest.mark.parametrize("arch", ["sm_90", *slow("gfx950")])
def test_a_kernel_is_built_and_taken_from_the_cache(arch: str, tmp_path: Path) -> None:
    with Builder(arch, toolchain="ziglang", build_dir=tmp_path) as builder:
        first = builder.need(KERNEL)
        work = builder.device_work()
    assert first.binary is not None, first.log
    assert first.binary.arch == first.binary.isa == arch
    assert first.binary.path.suffix == builder.toolchain.suffix  # type: ignore[union-attr]
    assert first.binary.path.with_name("kernel" + source_suffix(arch)).read_text() == source_for(KERNEL, arch)
    with Builder(arch, toolchain="ziglang", build_dir=tmp_path) as again:
        second = again.need(KERNEL)
        assert again.device_work() == work
    assert second.cached
    assert second.binary == first.binary
    with Builder(arch, toolchain="ziglang", build_dir=tmp_path / "another") as builder:
        equal = builder.need(KERNEL).binary
    assert equal.path.read_bytes() == first.binary.path.read_bytes(), "no folder names, times, random values"


def test_without_ptxas_the_driver_assembles(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "zig_folder", zig_folder)
    with Builder("sm_90", build_dir=tmp_path / "cache") as builder:
        result = builder.need(KERNEL)
    assert result.binary is not None, result.log
    text = result.binary.path.read_text()
    assert result.binary.path.suffix == ".ptx"
    assert ".version 8.0" in text, "newer PTX would need a newer driver than sm_90 does"
    assert ".target sm_90" in text
    assert "ptxas" not in result.binary.toolchain


def test_ptxas_is_used_if_installed(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "zig_folder", zig_folder)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    program(
        tmp_path / "cuda" / "bin" / "ptxas",
        "import sys\n"
        "if '--version' in sys.argv: print('ptxas: NVIDIA (R)\\nCuda compilation tools, release 13.0')\n"
        "else:\n"
        "    assert sys.argv[1:3] == ['-arch=sm_90', '-O3'], sys.argv\n"
        "    assert '.entry' in open(sys.argv[3]).read()\n"
        "    open(sys.argv[5], 'wb').write(b'\\x7fELF\\x02\\x01' + bytes(12) + b'\\xbe\\x00' + bytes(40))\n",
    )
    with Builder("sm_90", build_dir=tmp_path / "cache") as builder:
        result = builder.need(KERNEL)
    assert result.binary is not None, result.log
    assert result.binary.path.suffix == ".cubin"
    assert result.binary.toolchain.endswith("ptxas 13.0")


@pytest.mark.parametrize(
    ("place", "name", "says", "identity"),
    sampled(
        [
            ("rocm/llvm/bin/clang++", "rocm", "AMD clang version 19.0.0git (roc-6.4.1)", "AMD clang 19.0.0"),
            ("bin/clang++", "clang++", "Debian clang version 19.1.7 (3)", "clang 19.1.7"),
            (
                "bin/hipcc",
                "hipcc",
                "HIP version: 6.4.43483-a187df25c\nAMD clang version 19.0.0git (roc-6.4.1)",
                "AMD clang 19.0.0 (HIP version: 6.4.43483-a187df25c)",
            ),
        ],
        every=3,
    ),
)
def test_other_clangs_build_for_amd(
    bare: Path, tmp_path: Path, place: str, name: str, says: str, identity: str
) -> None:
    wrapped_clang(tmp_path / place, says)
    for wanted in ("auto", name):
        toolchain = find_gpu_toolchain(wanted, "gfx950")
        assert (toolchain.name, toolchain.identity) == (name, identity)
    with Builder("gfx950", toolchain=name, build_dir=tmp_path / "cache") as builder:
        result = builder.need(KERNEL)
    assert result.binary is not None, result.log
    assert result.binary.toolchain == identity


def test_without_a_compiler_the_message_says_how_to_get_one(bare: Path) -> None:
    with pytest.raises(BuildError, match="no compiler for gfx950 was found: pip install ziglang, or"):
        find_gpu_toolchain("auto", "gfx950")
    with pytest.raises(BuildError, match="no compiler for sm_90 was found: pip install ziglang"):
        find_gpu_toolchain("auto", "sm_90")
    with pytest.raises(BuildError, match="'hipcc' is not on this machine"):
        find_gpu_toolchain("hipcc", "gfx950")
    program(bare / "g++", "print('g++ (GCC) 15.1.0')\n")
    with pytest.raises(BuildError, match=r"'g\+\+' is neither clang nor hipcc"):
        find_gpu_toolchain("g++", "gfx950")


def test_kernels_without_gpu_code_are_refused() -> None:
    fields = KERNEL.as_row()
    with pytest.raises(KernelError, match=r"no code for sm_90 \(its matrix unit has tf32, .*: there is"):
        source_for(GroupedConvKernel(**(fields | {"dtype": "fp32"})), "sm_90")
    assert "TO_FP32" in source_for(GroupedConvKernel(**(fields | {"dtype": "fp32"})), "gfx950")
    with pytest.raises(KernelError, match="'preshufflev2' has no code for GPUs"):
        source_for(GroupedConvKernel(**(fields | {"pipeline": "preshufflev2"})), "sm_90")


def test_every_field_that_changes_the_code_is_in_the_source() -> None:
    changed = {
        "direction": "bwd_weight", "dtype": "fp16", "ndim": 3, "tile_m": 32, "tile_n": 32, "tile_k": 32,
        "wave_m": 2, "wave_n": 2, "wave_k": 2, "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 32,
        "vector_a": 1, "vector_b": 1, "vector_c": 1, "pipeline": "mem", "scheduler": "intrawave",
        "epilogue": "default", "double_smem_buffer": True, "split_image": True, "num_groups_to_merge": 2,
        "explicit_gemm": True, "pad_m": False, "pad_n": False, "pad_k": False,
    }  # fmt: skip
    fields = KERNEL.as_row()
    assert set(fields) - set(changed) == {"two_stage", "specialization"}, "a new field needs a macro"
    with pytest.raises(KernelError, match="specialization Filter3x3"):
        source_for(GroupedConvKernel(**(fields | {"specialization": "Filter3x3"})), "gfx950")
    sources = {
        source_for(GroupedConvKernel(**(fields | {name: value})), "gfx950") for name, value in changed.items()
    }
    two_stage = GroupedConvKernel(**(fields | {"direction": "bwd_weight", "two_stage": True}))
    sources |= {source_for(two_stage, "gfx950"), source_for(KERNEL, "gfx950")}
    assert len(sources) == len(changed) + 2


def test_a_compiler_without_output_is_a_build_error(bare: Path, tmp_path: Path) -> None:
    program(
        bare / "hipcc",
        "import sys\nif '--version' in sys.argv: print('AMD clang version 19.0.0')\n"
        "else: open(sys.argv[-1], 'wb').write(b'nothing')\n",
    )
    with Builder("gfx950", toolchain="hipcc", build_dir=tmp_path / "cache") as builder:
        result = builder.need(KERNEL)
        assert result.status == "build_error"
        assert "the compiler wrote no readable binary" in result.log
        with pytest.raises(BuildError, match=r"device_work.hpp does not compile"):
            builder.device_work()
