"""Facts of a kernel's code in records, from real binaries."""

from __future__ import annotations

import re
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_facts import CodeFacts, code_facts
from tile_oracle.compiling.gpu_toolchain import find_ptxas
from tile_oracle.kernel import parse_kernel_name

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
