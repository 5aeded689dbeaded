"""Facts of real code objects, compiled here for gfx950."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import CodeFacts, code_facts
from tile_oracle.compiling.code_object import inspect_code_object, what_is_wrong_for_gpu
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain, find_ptxas
from tile_oracle.compiling.isa import isa_for
from tile_oracle.compiling.process import CompilerProcesses
from tile_oracle.errors import BuildError
from tile_oracle.kernel import parse_kernel_name

SMALL = """\
extern "C" __attribute__((global)) void {name}(float *data) {{
  static __attribute__((shared)) float tile[{shared}];
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  tile[lane] = data[lane];
  __builtin_amdgcn_s_barrier();
  float kept[{kept}];
  for (int i = 0; i < {kept}; ++i) kept[i] = data[lane + 64 * i];
  for (int i = 0; i < {kept}; ++i) data[lane] += kept[(lane + i) % {kept}] * tile[63 - lane];
}}
"""

Compile = Callable[[str], Path]


@pytest.fixture
def compile_(tmp_path: Path) -> Compile:
    """Compiles a translation unit for gfx950 with the commands that a build runs."""

    def run(source: str) -> Path:
        toolchain = find_gpu_toolchain("ziglang", "gfx950")
        (tmp_path / "include").mkdir()
        (tmp_path / "kernel.hip").write_text(source)
        toolchain.prepare(tmp_path)
        for command in toolchain.commands(
            "kernel.hip", "kernel.hsaco", toolchain.flags("gfx950", isa_for("gfx950", "native"))
        ):
            ended = CompilerProcesses().run(command, tmp_path, 60)
            assert ended.ok, ended.log
        return tmp_path / "kernel.hsaco"

    return run


def test_the_numbers_are_the_kernels_own(compile_: Compile) -> None:
    path = compile_(
        SMALL.format(name="first", shared=1024, kept=1) + SMALL.format(name="b", shared=64, kept=40)
    )
    code = inspect_code_object(path)
    assert code.arch == "gfx950"
    assert set(code.kernels) == {"first", "b"}
    first, other = code.kernels["first"], code.kernels["b"]
    assert (first.lds_bytes, other.lds_bytes) == (4096, 256)
    assert first.wavefront_size == 64
    assert first.scratch_bytes == first.vgpr_spills == first.agprs == 0
    assert 1 <= first.vgprs < 64
    # An array with a run-time index is in scratch memory.
    assert other.scratch_bytes >= 160


def test_required_symbols_are_checked_in_code_objects_and_ptx(compile_: Compile, tmp_path: Path) -> None:
    path = compile_(SMALL.format(name="to_conv", shared=64, kept=1))
    assert what_is_wrong_for_gpu(path, "amdgcn", ("to_conv",)) is None
    wrong = what_is_wrong_for_gpu(path, "amdgcn", ("to_conv", "to_launch_info"))
    assert wrong == "the code object does not hold to_launch_info"
    path = tmp_path / "kernel.ptx"
    path.write_text(".version 8.0\n.target sm_90\n.visible .global .align 4 .b8 to_launch_info[36] = {1};\n")
    assert what_is_wrong_for_gpu(path, "nvptx", ("to_launch_info",)) is None
    assert what_is_wrong_for_gpu(path, "nvptx", ("to_conv",)) == "the PTX does not hold to_conv"
    path.write_text("nonsense")
    assert what_is_wrong_for_gpu(path, "nvptx", ()) == "the binary is neither a cubin nor PTX"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: b"\x7fELF\x02\x01" + bytes(200),
        lambda data: data[:18] + b"\x3e\x00" + data[20:],  # an x86_64 program
        lambda data: data.replace(b"amdhsa.kernels", b"amdhsa.kernelz"),
        lambda data: data.replace(b".vgpr_count", b".vgpr_cound"),
        lambda data: data.replace(b"\xaeamdhsa.kernels", b"\xddamdhsa.kernels"),  # a list of 1.6e9 entries
        lambda data: data.replace(b"\xaeamdhsa.kernels", b"\xaeamdhsa.kernel\xff"),  # not UTF-8
    ],
)
def test_a_damaged_file_gives_one_line(compile_: Compile, damage: Callable[[bytes], bytes]) -> None:
    path = compile_(SMALL.format(name="to_conv", shared=64, kept=1))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BuildError, match="is not an AMD code object, or is damaged"):
        inspect_code_object(path)


# Facts of a kernel's code in records, from real binaries.

KERNEL = parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_compv4_intrawave_dsb")


def built(arch: str, folder: Path) -> Path:
    with Builder(arch, toolchain="ziglang", build_dir=folder) as builder:
        result = builder.need(KERNEL)
    assert result.binary is not None, result.log
    return result.binary.path


def test_a_code_object_gives_all_facts(tmp_path: Path) -> None:
    facts = code_facts(built("gfx950", tmp_path), "gfx950")
    assert None not in asdict(facts).values()
    assert 32 <= facts.vgprs <= 512
    assert facts.lds_bytes is not None
    two_buffers = 2 * 2 * (64 + 64) * 64  # of two tiles of bf16
    assert two_buffers <= facts.lds_bytes < 1.25 * two_buffers
    assert facts.spills == facts.scratch_bytes == 0


@pytest.mark.slow
@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
def test_a_cubin_gives_the_facts_of_ptxas(tmp_path: Path) -> None:
    path = built("sm_90", tmp_path)
    facts = code_facts(path, "sm_90")
    ptx = tmp_path / "kernel.ptx"
    ptxas = find_ptxas()
    assert ptxas is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tile_oracle.compiling.gpu_toolchain.find_ptxas", lambda machine="nvptx": None)
        ptx.write_bytes(built("sm_90", tmp_path / "other").read_bytes())
    said = subprocess.run(
        [ptxas, "-v", "-arch=sm_90", "-O3", ptx, "-o", tmp_path / "x"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    registers = re.search(r"Used (\d+) registers", said)
    frame = re.search(r"(\d+) bytes stack frame", said)
    assert (facts.vgprs, facts.scratch_bytes) == (int(registers[1]), int(frame[1]))
    assert facts.lds_bytes >= 2 * 2 * (64 + 64) * 64
    assert facts.agprs is None
    assert facts.sgprs is None
    assert "0 bytes spill stores" in said
    assert facts.spills == 0


def test_ptx_and_cpu_binaries_give_no_facts(tmp_path: Path) -> None:
    (tmp_path / "kernel.ptx").write_text(".target sm_90\n")
    assert code_facts(tmp_path / "kernel.ptx", "sm_90") == CodeFacts()
    assert code_facts(tmp_path / "kernel.so", "cpu") == CodeFacts()


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_damaged_binaries_give_no_facts(arch: str, tmp_path: Path) -> None:
    suffix = ".hsaco" if arch == "gfx950" else ".cubin"
    for number, content in enumerate((b"", b"\x7fELF\x02\x01" + bytes(300), b"\x7fELF" * 40)):
        path = tmp_path / f"{number}{suffix}"
        path.write_bytes(content)
        assert code_facts(path, arch) == CodeFacts()
