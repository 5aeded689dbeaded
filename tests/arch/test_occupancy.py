"""Workgroups per compute unit, compared with the vendors' own values."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.arch import load_arch
from tile_oracle.arch.occupancy import Occupancy, archs_with_occupancy, occupancy
from tile_oracle.compiling.code_facts import code_facts
from tile_oracle.compiling.gpu_toolchain import find_gpu_toolchain
from tile_oracle.compiling.isa import isa_for
from tile_oracle.compiling.machine_code import amd_code, main_loop_matrix_instructions, nvidia_code, ptx_code
from tile_oracle.compiling.source import headers_for, source_for
from tile_oracle.compiling.toolchain import compiler_environment
from tile_oracle.errors import RuleError
from tile_oracle.kernel import parse_kernel_name


@pytest.mark.parametrize(
    ("threads", "registers", "lds_bytes", "blocks"),
    [
        # From NVIDIA's occupancy calculator for compute capability 9.0.
        (256, 32, 0, 8),
        (256, 64, 0, 4),
        (128, 168, 32 << 10, 3),
        (128, 168, 100 << 10, 2),
        (512, 128, 0, 1),
        (1024, 65, 0, 0),
        (32, 32, 0, 32),
        (96, 255, 0, 2),
    ],
)
def test_sm_90(threads: int, registers: int, lds_bytes: int, blocks: int) -> None:
    warps = -(-threads // 32)
    assert occupancy("sm_90", threads, registers, lds_bytes) == Occupancy(blocks, blocks * warps)


def test_an_architecture_without_figures_is_refused() -> None:
    with pytest.raises(RuleError, match=r"the compute unit of gfx908, only those of gfx90a, gfx942"):
        occupancy("gfx908", 256, 64, 0)


@given(
    st.sampled_from(archs_with_occupancy()),
    st.integers(1, 1024),
    st.integers(1, 512),
    st.integers(0, 160 << 10),
)
def test_active_workgroups_fit(arch: str, threads: int, vgprs: int, lds_bytes: int) -> None:
    found, held = load_arch(arch), occupancy(arch, threads, vgprs, lds_bytes)
    unit = found.hardware
    waves = -(-threads // unit.wavefront_size)
    assert held.waves_per_cu == held.workgroups_per_cu * waves
    assert held.waves_per_cu <= unit.max_waves_per_cu
    assert held.waves_per_cu * vgprs <= unit.simds_per_cu * unit.registers_per_lane
    assert held.workgroups_per_cu * lds_bytes <= max(found.lds_limit_bytes, unit.lds_capacity_bytes)
    assert (
        held.workgroups_per_cu >= occupancy(arch, threads, min(512, vgprs + 8), lds_bytes).workgroups_per_cu
    )
    assert held.workgroups_per_cu >= occupancy(arch, threads, vgprs, lds_bytes + 1280).workgroups_per_cu


def compiled(name: str, arch: str, work: Path) -> tuple[Path, str]:
    """The binary of a kernel, and the assembly that it was made from."""
    toolchain, kernel = find_gpu_toolchain("ziglang", arch), parse_kernel_name(f"grouped_conv_{name}")
    toolchain.prepare(work)
    headers_for(arch).write(work / "include")
    source = "kernel.cu" if arch == "sm_90" else "kernel.hip"
    (work / source).write_text(source_for(kernel, arch))
    output = work / f"out{toolchain.suffix}"
    flags = toolchain.flags(arch, isa_for(arch, "native"))
    for command in toolchain.commands(source, output.name, flags):
        subprocess.run(command, cwd=work, env=compiler_environment(work), check=True)
    text = work / ("kernel.ptx" if arch == "sm_90" else "kernel.s")
    return output, (text if text.exists() else output).read_text()


GFX950 = [
    "forward_bf16_2d_16x64x64_basic_v1_interwave",
    "forward_bf16_2d_64x64x64_compv3_intrawave_dsb_si",
    "bwd_data_bf16_2d_64x128x64_compv6_intrawave_dsb",
    "bwd_weight_fp16_3d_32x64x128_mem_intrawave",
]


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_older_gfx9_matches_the_compilers_remarks(arch: str, tmp_path: Path) -> None:
    """LDS in blocks of 512 bytes; a warp tile of 16x16x32 is two instructions."""
    name = "forward_bf16_2d_16x64x64_compv3_intrawave_w1x4x1_wt16x16x32"
    binary, text = compiled(name, arch, tmp_path)
    facts = code_facts(binary, arch)
    assert facts.waves_per_cu == 4 * int(re.findall(r"; Occupancy: (\d+)", text)[0])
    in_all = len(re.findall(r"^\s+v_mfma", text, re.MULTILINE))
    assert facts.loop_matrix_instructions == in_all == 4


def test_sm_90_counts_alike_in_ptx_and_machine_code(tmp_path: Path) -> None:
    binary, text = compiled("forward_bf16_2d_64x64x64_compv3_intrawave_v8x8x8", "sm_90", tmp_path)
    in_ptx = main_loop_matrix_instructions(ptx_code(text, "to_conv"))
    assert in_ptx == 4 * 1 * 2 * 4
    assert code_facts(binary, "sm_90").loop_matrix_instructions == in_ptx


def test_the_innermost_loop_counts() -> None:
    """Two loops inside one that has its own matrix instruction, and one after all loops."""
    code = [(0, None, True), (4, None, True), (8, 4, False), (12, None, True), (16, None, True)]
    code += [(20, 12, False), (24, 0, False), (28, None, True), (32, 28 + 40, False)]
    assert main_loop_matrix_instructions(code) == 2
    assert main_loop_matrix_instructions(code[:3]) == 1
    assert main_loop_matrix_instructions([(0, None, True), (4, 40, False)]) == 0


def test_machine_code_that_is_cut_off_is_refused() -> None:
    long_instruction = (0xD3 << 24).to_bytes(4, "little")
    with pytest.raises(ValueError, match="within an instruction"):
        amd_code(long_instruction)
    with pytest.raises(ValueError, match="within an instruction"):
        nvidia_code(bytes(24))
    with pytest.raises(ValueError, match="no entry"):
        ptx_code(".entry other()\n{\n}\n", "to_conv")
