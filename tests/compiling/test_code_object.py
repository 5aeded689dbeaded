"""Facts of real code objects, compiled here for gfx950."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tile_oracle.compiling.code_object import inspect_code_object, what_is_wrong_for_gpu
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain
from tile_oracle.compiling.isa import isa_for
from tile_oracle.compiling.process import CompilerProcesses
from tile_oracle.errors import BuildError

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
