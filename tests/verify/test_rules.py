"""Each rule of the verifier on a few lines of assembly: violations and valid code."""

from __future__ import annotations

import pytest

from tile_oracle.errors import BuildError
from tile_oracle.verify.findings import Finding
from tile_oracle.verify.verifier import verify_assembly

_FRAME = """\
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
\t.type\tkernel,@function
kernel:
{body}
\ts_endpgm
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size 4096
\t\t.amdhsa_kernarg_size 48
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t.end_amdhsa_kernel
"""


def findings(body: str) -> tuple[Finding, ...]:
    lines = "\n".join(line if line.endswith(":") else f"\t{line}" for line in body.strip().splitlines())
    report = verify_assembly(_FRAME.format(body=lines))
    assert not report.incomplete
    return report.findings


def rules(body: str) -> list[str]:
    return sorted({finding.rule for finding in findings(body)})


@pytest.mark.parametrize(
    ("body", "broken"),
    [
        # Vector loads, in order: two younger ones are outstanding at most.
        (
            """global_load_dword v1, v[8:9], off
global_load_dword v2, v[8:9], off
global_load_dword v3, v[8:9], off
s_waitcnt vmcnt({n})
v_add_u32_e32 v4, v1, v5""",
            "vmcnt",
        ),
        # A store counts, too.
        (
            """global_load_dword v1, v[8:9], off
global_store_dword v[8:9], v5, off
global_store_dword v[8:9], v6, off
s_waitcnt vmcnt({n})
v_mov_b32_e32 v1, 0""",
            "vmcnt",
        ),
        # LDS alone is in order.
        (
            """ds_read_b32 v1, v0
ds_read_b32 v2, v0
ds_read_b32 v3, v0
s_waitcnt lgkmcnt({n})
v_add_u32_e32 v4, v1, v5""",
            "lgkmcnt",
        ),
    ],
)
def test_a_wait_covers_what_is_old_enough(body: str, broken: str) -> None:
    assert rules(body.format(n=2)) == []
    assert rules(body.format(n=3)) == [broken]


def test_scalar_loads_are_out_of_order() -> None:
    mixed = "ds_read_b32 v1, v0\ns_load_dword s4, s[0:1], 0x0\ns_waitcnt lgkmcnt({n})\nv_mov_b32_e32 v2, v1"
    assert rules(mixed.format(n=0)) == []
    assert rules(mixed.format(n=1)) == ["lgkmcnt"]


def test_a_copy_to_lds_counts_in_vmcnt_alone() -> None:
    """LLVM 22 also counts it in lgkmcnt, and so waits for one fewer of the others."""
    body = """v_mov_b32_e32 v3, 0
ds_bpermute_b32 v1, v0, v2
s_mov_b32 m0, 0
s_nop 0
global_load_lds_dwordx4 v[8:9], off
s_waitcnt lgkmcnt({n})
v_mov_b32_e32 v4, v1"""
    assert rules(body.format(n=0)) == []
    (finding,) = findings(body.format(n=1))
    assert finding.rule == "lgkmcnt"
    assert finding.cause.startswith("ds_bpermute_b32")
    assert finding.text == "v_mov_b32_e32 v4, v1"


def test_the_worst_path_counts_and_is_shown() -> None:
    body = """global_load_dword v1, v[8:9], off
s_cbranch_scc1 .LBB0_2
global_load_dword v2, v[8:9], off
.LBB0_2:
s_waitcnt vmcnt(1)
v_add_u32_e32 v4, v1, v5"""
    (finding,) = findings(body)
    assert finding.path[-1] == ".LBB0_2"
    assert len(finding.path) == 2
    assert rules(body.replace("s_cbranch_scc1", "s_nop 0 ;")) == []


def test_what_is_outstanding_at_the_end_of_a_loop_is_at_its_beginning() -> None:
    loop = """.LBB0_1:
v_mov_b32_e32 v4, v1
global_load_dword v1, v[8:9], off
{wait}
s_cbranch_scc1 .LBB0_1
s_waitcnt vmcnt(0)"""
    assert rules(loop.format(wait="s_waitcnt vmcnt(0)")) == []
    assert rules(loop.format(wait="s_nop 0")) == ["vmcnt"]


def test_an_lds_write_at_a_barrier() -> None:
    body = "ds_write_b32 v0, v1\n{wait}\ns_barrier"
    assert rules(body.format(wait="s_waitcnt lgkmcnt(0)")) == []
    assert rules(body.format(wait="s_waitcnt vmcnt(0)")) == ["barrier"]


_CALL = """\
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
\t.type\tcalled,@function
called:
\t{begin}
\tglobal_load_dword v0, v[2:3], off
\t{end}
\ts_setpc_b64 s[30:31]
\t.type\tkernel,@function
kernel:
\tglobal_load_dword v0, v[2:3], off
\ts_swappc_b64 s[30:31], s[0:1]
\tv_mov_b32_e32 v1, v0
\ts_endpgm
\t.amdhsa_kernel kernel
\t\t.amdhsa_kernarg_size 48
\t.end_amdhsa_kernel
"""


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        ("s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)", "s_waitcnt vmcnt(0)", []),
        ("s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)", "s_nop 0", ["called"]),
        ("s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0)", ["kernel"]),
    ],
    ids=["waits", "returns too early", "begins without a wait"],
)
def test_a_call_is_a_wait_if_all_called_functions_begin_with_one(
    begin: str, end: str, found: list[str]
) -> None:
    report = verify_assembly(_CALL.format(begin=begin, end=end))
    assert [finding.function for finding in report.findings] == found
    assert {finding.rule for finding in report.findings} <= {"vmcnt"}
    assert "kernel: s_swappc_b64 is not followed" in report.incomplete


_F16 = "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], v[0:3]"
_32X32 = "v_mfma_f32_32x32x16_bf16 v[0:15], v[20:23], v[24:27], v[0:15]"
_F8 = "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[20:27], v[28:35], v[0:15]"
_READ = "v_mov_b32_e32 v9, v2"
_1K = "v_mfma_f32_16x16x16bf16_1k v[0:3], v[4:5], v[6:7], v[0:3]"
_OF_GFX942 = _1K.replace("16bf16_1k", "16_bf16")
_PARTLY = "v_mfma_f32_16x16x16{} v[16:19], v[4:5], v[6:7], v[2:5]"


@pytest.mark.parametrize(
    ("arch", "first", "second", "states"),
    [
        # The numbers of gfx950: passes + 4 but for the shortest, whose are 5.
        ("gfx950", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]", _READ, 8),
        ("gfx950", _32X32, "v_mov_b32_e32 v40, v2", 12),
        ("gfx950", _F8, "global_store_dword v[40:41], v2, off", 20),
        ("gfx950", "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3]", _READ, 5),
        ("gfx950", "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3]", _READ, 10),
        # As the next one's operand; as its sums: at once where they are the same registers.
        ("gfx950", _F16, "v_mfma_f32_16x16x32_f16 v[12:15], v[0:3], v[8:11], v[12:15]", 8),
        ("gfx950", _F16, _F16, 0),
        ("gfx950", _F16, "v_mfma_f32_16x16x32_f16 v[16:19], v[4:7], v[8:11], v[2:5]", 6),
        ("gfx950", "v_mov_b32_e32 v4, 0", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]", 2),
        ("gfx950", "v_cmp_eq_u32_e32 vcc, v0, v1", "v_cndmask_b32_e32 v2, v3, v4, vcc", 2),
        ("gfx950", "v_readfirstlane_b32 s4, v0", "buffer_load_dword v1, v2, s[8:11], s4 offen", 5),
        ("gfx950", "v_rcp_f32_e32 v1, v0", "v_mul_f32_e32 v2, v1, v3", 1),
        ("gfx950", "v_mov_b32_e32 v1, v0", "v_readfirstlane_b32 s4, v1", 1),
        ("gfx950", "s_mov_b32 m0, s4", "global_load_lds_dwordx4 v[0:1], off", 1),
        ("gfx950", "global_store_dwordx4 v[0:1], v[4:7], off", "v_mov_b32_e32 v5, 0", 1),
        ("gfx950", "v_cmp_eq_f32_e32 vcc, v0, v1", "v_div_fmas_f32 v2, v3, v4, v5", 4),
        # By LLVM: passes + 3. gfx90a takes twice the passes, also for fp32.
        ("gfx942", _OF_GFX942, _READ, 7),
        ("gfx942", "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3]", _READ, 10),
        ("gfx942", _OF_GFX942, _PARTLY.format("_bf16"), 5),
        ("gfx942", "v_rcp_f32_e32 v1, v0", "v_mul_f32_e32 v2, v1, v3", 1),
        ("gfx90a", _1K, _READ, 11),
        ("gfx90a", "v_mfma_f32_32x32x8f16 v[0:15], v[20:21], v[22:23], v[0:15]", "v_mov_b32_e32 v40, v2", 19),
        ("gfx90a", "v_mfma_f32_16x16x4f32 v[0:3], v4, v5, v[0:3]", _READ, 11),
        ("gfx90a", _1K, _PARTLY.format("bf16_1k"), 8),
        ("gfx90a", "v_mfma_f32_4x4x4f16 v[0:3], v[4:5], v[6:7], v[0:3]", _READ, 5),
        ("gfx90a", "v_rcp_f32_e32 v1, v0", "v_mul_f32_e32 v2, v1, v3", 0),
        ("gfx90a", "v_cmp_eq_f32_e32 vcc, v0, v1", "v_div_fmas_f32 v2, v3, v4, v5", 4),
    ],
)
def test_wait_states(arch: str, first: str, second: str, states: int) -> None:
    frame = _FRAME.replace("gfx950", arch)

    def found(count: int) -> list[str]:
        gap = [f"s_nop {min(left, 16) - 1}" for left in (count, count - 16) if left > 0]
        report = verify_assembly(frame.format(body="\n".join(f"\t{line}" for line in [first, *gap, second])))
        assert not report.incomplete
        return [finding.rule for finding in report.findings]

    assert found(states) == []
    if states:
        assert found(states - 1) == ["wait-states"]


@pytest.mark.parametrize(("taken", "enough"), [(True, 6), (False, 7)])
def test_a_taken_branch_is_two_wait_states(taken: bool, enough: int) -> None:
    first = _F16
    read = "v_mov_b32_e32 v20, v2"
    body = "{first}\ns_nop {gap}\ns_cbranch_scc1 target\n{straight}\ns_endpgm\ntarget:\n{after}"
    straight, after = ("s_nop 0", read) if taken else (read, "s_nop 0")

    def of(gap: int) -> list[str]:
        return rules(body.format(first=first, gap=gap, straight=straight, after=after))

    # Eight wait states: four passes, three, and one of gfx950. The branch itself is one.
    assert of(enough - 1) == []
    assert of(enough - 2) == ["wait-states"]


def test_accesses_to_lds_at_constant_addresses() -> None:
    assert rules("v_mov_b32_e32 v0, 0xff0\nds_write_b128 v0, v[4:7]") == []
    assert rules("v_mov_b32_e32 v0, 0xff4\nds_write_b128 v0, v[4:7]") == ["lds-bounds"]
    assert rules("ds_read2_b64 v[4:7], v1 offset1:255\ns_waitcnt lgkmcnt(0)") == []
    assert rules("ds_read2st64_b64 v[4:7], v1 offset1:8\ns_waitcnt lgkmcnt(0)") == ["lds-bounds"]


def test_a_disassembly_reads_like_the_assembly() -> None:
    """As llvm-objdump writes it; a branch gives its offset in words."""
    text = """\
kernel.hsaco:\tfile format elf64-amdgpu

Disassembly of section .text:

0000000000001900 <kernel>:
\tglobal_load_dword v1, v[8:9], off                          // 000000001900: DC508000 017F0008
\ts_cbranch_scc1 2                                           // 000000001908: BF850002 <kernel+0x14>
\tglobal_load_dword v2, v[8:9], off                          // 00000000190C: DC508000 027F0008
\ts_waitcnt vmcnt(1)                                         // 000000001914: BF8C0F71
\tv_add_u32_e32 v4, v1, v5                                   // 000000001918: 68080B01
\ts_endpgm                                                   // 00000000191C: BF810000
"""
    (finding,) = verify_assembly(text).findings
    assert (finding.rule, finding.function, finding.text) == ("vmcnt", "kernel", "v_add_u32_e32 v4, v1, v5")


def test_unfollowed_code_is_reported() -> None:
    report = verify_assembly(_FRAME.format(body="\ts_swappc_b64 s[30:31], s[4:5]\n\tv_surprise_b32 v1, v2"))
    assert report.incomplete == ("kernel: s_swappc_b64 is not followed",)


def test_a_text_without_functions() -> None:
    with pytest.raises(BuildError, match="holds no function"):
        verify_assembly("int main() { return 0; }")


def test_the_target_is_read_in_the_notations_of_old_and_new_compilers() -> None:
    for named in ("amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-", "amdgpu9.42-amd-amdhsa-unknown-gfx942"):
        text = _FRAME.format(body="\ts_nop 0").replace("amdgcn-amd-amdhsa--gfx950", named)
        assert verify_assembly(text).target == "gfx942"


def test_files_one_after_another_keep_their_own_settings() -> None:
    """As Triton's launches of one kernel, whose functions may have the same name."""
    body = "\tv_mov_b32_e32 v0, 0\n\tds_read_b32 v1, v0 offset:4092\n\ts_waitcnt lgkmcnt(0)"
    large = _FRAME.format(body=body)
    small = large.replace("segment_fixed_size 4096", "segment_fixed_size 1024")
    assert not verify_assembly(large).findings
    report = verify_assembly(large + small + large)
    assert len(report.functions) == 3
    (finding,) = report.findings
    assert finding.rule == "lds-bounds"
    assert finding.line == large.count("\n") + 5


@pytest.mark.parametrize("told", ["[" * 1000, "a: [", "amdhsa.kernels: 1"])
def test_damaged_metadata_is_refused_in_one_line(told: str) -> None:
    text = f"{_FRAME.format(body='')}\t.amdgpu_metadata\n{told}\n\t.end_amdgpu_metadata\n"
    with pytest.raises(BuildError, match="metadata is damaged: compile it again"):
        verify_assembly(text)
