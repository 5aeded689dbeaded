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


def findings(body: str, buffers: int | None = None) -> tuple[Finding, ...]:
    lines = "\n".join(line if line.endswith(":") else f"\t{line}" for line in body.strip().splitlines())
    report = verify_assembly(_FRAME.format(body=lines), buffers)
    assert not report.incomplete
    return report.findings


def rules(body: str, buffers: int | None = None) -> list[str]:
    return sorted({finding.rule for finding in findings(body, buffers)})


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


def test_a_read_across_a_barrier_and_a_write_behind_it() -> None:
    body = "ds_read_b32 v1, v0\n{wait}\ns_barrier\nds_write_b32 v0, v5"
    assert rules(body.format(wait="s_waitcnt lgkmcnt(0)")) == []
    assert rules(body.format(wait="s_nop 0")) == ["read-across"]


_COPY_LOOP = """.LBB0_1:
s_mov_b32 m0, 0
s_nop 0
global_load_lds_dwordx4 v[8:9], off
{wait}
{barrier}
ds_read_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
s_cbranch_scc1 .LBB0_1
s_waitcnt vmcnt(0)"""


def test_copies_to_lds_are_waited_for_before_a_barrier() -> None:
    right = {"wait": "s_waitcnt vmcnt(0)", "barrier": "s_barrier"}
    assert rules(_COPY_LOOP.format(**right)) == []
    assert rules(_COPY_LOOP.format(wait="s_nop 0", barrier="s_barrier")) == ["async-reuse"]


def test_copies_into_a_ring_of_buffers_may_be_in_flight_for_several_rounds() -> None:
    """As Triton's loops with three stages: m0 steps through the buffers."""
    ring = _COPY_LOOP.replace("s_mov_b32 m0, 0", "{place}").format(
        place="{place}", wait="s_waitcnt vmcnt(2)", barrier="s_barrier"
    )
    assert rules(ring.format(place="s_add_i32 m0, s4, 0x1040")) == []
    assert rules(ring.format(place="s_add_i32 m0, s4, 0x1040"), 1) == ["async-reuse"]
    assert rules(ring.format(place="s_mov_b32 m0, 0x1040")) == ["async-reuse"]
    before = "s_mov_b32 m0, s4\n" + ring.format(place="s_nop 0")
    assert rules(before) == ["async-reuse"], "m0 stays the same in the loop"


def test_lds_that_an_epilogue_writes_while_a_copy_is_in_flight() -> None:
    body = """s_mov_b32 m0, 0
s_nop 0
global_load_lds_dwordx4 v[8:9], off
{wait}
s_barrier
ds_write_b32 v0, v5"""
    assert rules(body.format(wait="s_waitcnt vmcnt(0)")) == []
    assert rules(body.format(wait="s_nop 0")) == ["async-write"]


def test_other_waves_copies_may_be_in_flight_behind_a_late_wait() -> None:
    """A wait behind the barrier is for this wave's copies only."""
    body = """s_mov_b32 m0, 0
s_nop 0
global_load_lds_dwordx4 v[8:9], off
{before}
s_barrier
{behind}
ds_write_b32 v0, v5"""
    nop, wait = "s_nop 0", "s_waitcnt vmcnt(0)"
    assert rules(body.format(before=wait, behind=nop)) == []
    assert rules(body.format(before=nop, behind=wait)) == ["async-write"]
    assert rules(body.format(before=nop, behind=f"{wait}\ns_barrier")) == []


def test_paths_with_copies_in_different_states() -> None:
    """The copy is in flight across the barrier on one path, and issued behind it on the other."""
    body = """s_mov_b32 m0, 0
s_nop 0
s_cbranch_scc1 .LBB0_2
.LBB0_1:
global_load_lds_dwordx4 v[8:9], off
s_cbranch_scc0 .LBB0_3
.LBB0_2:
{wait}
s_barrier
s_cbranch_vccnz .LBB0_1
.LBB0_3:
ds_write_b32 v0, v5"""
    assert rules(body.format(wait="s_waitcnt vmcnt(0)")) == []
    assert "async-write" in rules(body.format(wait="s_nop 0"))


_COPIED_TILE = """.LBB0_1:
s_mov_b32 m0, 0
s_nop 0
global_load_lds_dwordx4 v[8:9], off
{before}
s_barrier
{behind}
ds_read_b64 v[10:11], v1
s_waitcnt lgkmcnt(0)
v_mfma_f32_16x16x16_bf16 v[20:23], v[10:11], v[12:13], v[20:23]
s_barrier
s_cbranch_scc1 .LBB0_1"""


def test_copied_tiles_of_one_buffer_are_waited_for_before_the_barrier() -> None:
    nop, wait = "s_nop 0", "s_waitcnt vmcnt(0)"
    assert rules(_COPIED_TILE.format(before=wait, behind=nop), 1) == []
    assert rules(_COPIED_TILE.format(before=nop, behind=wait), 1) == ["async-read"]
    assert rules(_COPIED_TILE.format(before=nop, behind=wait), 2) == []


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


_TILES = """.LBB0_1:
ds_write_b64 v0, v[4:5]
s_waitcnt lgkmcnt(0)
{published}
ds_read_b64 v[10:11], v1
s_waitcnt lgkmcnt(0)
v_mfma_f32_16x16x16_bf16 v[20:23], v[10:11], v[12:13], v[20:23]
{free}
s_cbranch_scc1 .LBB0_1"""


def test_tiles_of_one_buffer_need_both_barriers() -> None:
    assert rules(_TILES.format(published="s_barrier", free="s_barrier"), 1) == []
    assert rules(_TILES.format(published="s_nop 0", free="s_barrier"), 1) == ["race"]
    assert rules(_TILES.format(published="s_barrier", free="s_nop 0"), 1) == ["race"]


def test_tiles_of_two_buffers_need_one() -> None:
    assert rules(_TILES.format(published="s_barrier", free="s_nop 0"), 2) == []
    assert rules(_TILES.format(published="s_nop 0", free="s_nop 0"), 2) == ["loop-barrier"]


def test_a_tile_is_multiplied_on_a_path_that_is_not_the_next_line() -> None:
    """The loop begins in its middle, and behind it a register of the tile holds a result that is stored."""
    body = """s_branch .LBB0_2
.LBB0_1:
v_mfma_f32_16x16x16_bf16 v[20:23], v[10:11], v[12:13], v[20:23]
s_cbranch_scc0 .LBB0_3
.LBB0_2:
s_waitcnt vmcnt(0) lgkmcnt(0)
s_barrier
ds_read_b64 v[10:11], v1
s_waitcnt lgkmcnt(0)
s_cbranch_scc1 .LBB0_1
s_mov_b32 m0, s4
s_nop 0
global_load_lds_dwordx4 v[8:9], off
s_branch .LBB0_1
.LBB0_3:
s_waitcnt vmcnt(0)
s_nop 10
v_cvt_f16_f32_sdwa v10, v20 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD
s_nop 1
global_store_dword v[8:9], v10, off"""
    assert rules(body, 2) == []
    assert "race" in rules(body, 1)


_ROLLED = """s_load_dword s9, s[0:1], 0x0
v_mov_b32_e32 v4, 0
.LBB0_1:
s_waitcnt lgkmcnt(0)
s_barrier
s_mov_b32 s4, {first}
s_branch .LBB0_3
.LBB0_2:
s_cmp_lg_u32 s5, 8
s_mov_b32 s4, s5
s_cbranch_scc0 .LBB0_5
.LBB0_3:
s_or_b32 s6, s4, 1
ds_read_b64 v[10:11], v1
{compare}
{then}
s_cbranch_scc1 .LBB0_4
ds_write_b64 v2, v[4:5]
.LBB0_4:
s_waitcnt lgkmcnt(0)
v_mfma_f32_16x16x16_bf16 v[20:23], v[10:11], v[12:13], v[20:23]
s_add_i32 s5, s4, 4
s_branch .LBB0_2
.LBB0_5:
s_sub_i32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 .LBB0_1"""
"""Two buffers, and steps along k that the compiler unrolled by four only: the counter s4 is 0, then 4."""

_BY_VCC = """s_cselect_b64 s[14:15], -1, 0
{}
s_and_b64 vcc, exec, s[14:15]
s_cbranch_vccnz .LBB0_4
s_cmp_lg_u32 s9, 0"""


@pytest.mark.parametrize(
    ("first", "compare", "then", "expected"),
    [
        ("0", "s_cmp_lg_u32 s4, 0", "s_nop 0", []),
        ("0", "s_cmp_lg_u32 s6, 1", "s_nop 0", []),
        ("0", "s_cmp_le_i32 s4, -1", "s_nop 0", ["loop-barrier"]),
        ("s9", "s_cmp_lg_u32 s4, 0", "s_nop 0", ["loop-barrier"]),
        ("0", "s_cmp_lg_u32 s4, s9", "s_nop 0", ["loop-barrier"]),
        ("0", "s_cmp_lg_u32 s4, 0", "s_and_b32 s7, s9, 1", ["loop-barrier"]),
        ("2", "s_cmp_lg_u32 s4, 2", "s_nop 0", ["loop-barrier"]),
        ("0", "s_cmp_lg_u32 s4, 0", _BY_VCC.format("s_or_b64 s[14:15], s[14:15], s[18:19]"), []),
        (
            "0",
            "s_cmp_lg_u32 s4, 0",
            _BY_VCC.format("s_and_b64 s[14:15], s[14:15], s[18:19]"),
            ["loop-barrier"],
        ),
    ],
    ids=[
        "writes in its first iteration",
        "by a register computed from the counter",
        "writes in every iteration",
        "starts at an unknown number",
        "compares with an unknown number",
        "loses the comparison",
        "counts past its end and round",
        "in its first iteration at most, by vcc",
        "by vcc and something unknown",
    ],
)
def test_a_loop_of_constant_length_writes_lds_once(
    first: str, compare: str, then: str, expected: list[str]
) -> None:
    body = _ROLLED.format(first=first, compare=compare, then=then)
    assert rules(body, 2) == expected


def test_what_is_exchanged_for_stores_needs_barriers() -> None:
    body = """ds_write_b32 v0, v1
s_waitcnt lgkmcnt(0)
{barrier}
ds_read_b32 v2, v3
s_waitcnt lgkmcnt(0)
global_store_dword v[8:9], v2, off"""
    assert rules(body.format(barrier="s_barrier")) == []
    assert rules(body.format(barrier="s_nop 0")) == ["race"]


_METADATA = """\
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .max_flat_workgroup_size: {threads}
    .name:           kernel
    .symbol:         kernel.kd
    .wavefront_size: 64
...
\t.end_amdgpu_metadata
"""


def test_a_workgroup_of_one_wave_needs_no_barriers() -> None:
    body = """\tds_write_b32 v0, v1
\ts_waitcnt lgkmcnt(0)
\tds_read_b32 v2, v3
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v[8:9], v2, off"""
    for threads, expected in ((64, []), (128, ["race"])):
        text = _FRAME.format(body=body) + _METADATA.format(threads=threads)
        assert [one.rule for one in verify_assembly(text).findings] == expected


@pytest.mark.parametrize(
    ("first", "second", "states"),
    [
        # The numbers of gfx950: passes + 4 but for the shortest, whose are 5.
        ("v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]", "v_mov_b32_e32 v9, v2", 8),
        ("v_mfma_f32_32x32x16_bf16 v[0:15], v[20:23], v[24:27], v[0:15]", "v_mov_b32_e32 v40, v2", 12),
        (
            "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[20:27], v[28:35], v[0:15]",
            "global_store_dword v[40:41], v2, off",
            20,
        ),
        ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3]", "v_mov_b32_e32 v9, v2", 5),
        ("v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3]", "v_mov_b32_e32 v9, v2", 10),
        # As the next one's operand; as its sums: at once where they are the same registers.
        (
            "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], v[0:3]",
            "v_mfma_f32_16x16x32_f16 v[12:15], v[0:3], v[8:11], v[12:15]",
            8,
        ),
        (
            "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], v[0:3]",
            "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], v[0:3]",
            0,
        ),
        (
            "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], v[0:3]",
            "v_mfma_f32_16x16x32_f16 v[16:19], v[4:7], v[8:11], v[2:5]",
            6,
        ),
        ("v_mov_b32_e32 v4, 0", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]", 2),
        ("v_cmp_eq_u32_e32 vcc, v0, v1", "v_cndmask_b32_e32 v2, v3, v4, vcc", 2),
        ("v_readfirstlane_b32 s4, v0", "buffer_load_dword v1, v2, s[8:11], s4 offen", 5),
        ("v_rcp_f32_e32 v1, v0", "v_mul_f32_e32 v2, v1, v3", 1),
        ("v_mov_b32_e32 v1, v0", "v_readfirstlane_b32 s4, v1", 1),
        ("s_mov_b32 m0, s4", "global_load_lds_dwordx4 v[0:1], off", 1),
        ("global_store_dwordx4 v[0:1], v[4:7], off", "v_mov_b32_e32 v5, 0", 1),
        ("v_cmp_eq_f32_e32 vcc, v0, v1", "v_div_fmas_f32 v2, v3, v4, v5", 4),
    ],
)
def test_wait_states(first: str, second: str, states: int) -> None:
    def between(count: int) -> list[str]:
        gap = [f"s_nop {min(left, 16) - 1}" for left in (count, count - 16) if left > 0]
        return rules("\n".join([first, *gap, second]))

    assert between(states) == []
    if states:
        assert between(states - 1) == ["wait-states"]


@pytest.mark.parametrize(("taken", "enough"), [(True, 6), (False, 7)])
def test_a_taken_branch_is_two_wait_states(taken: bool, enough: int) -> None:
    first = "v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], v[0:3]"
    read = "v_mov_b32_e32 v20, v2"
    body = "{first}\ns_nop {gap}\ns_cbranch_scc1 target\n{straight}\ns_endpgm\ntarget:\n{after}"
    straight, after = ("s_nop 0", read) if taken else (read, "s_nop 0")

    def of(gap: int) -> list[str]:
        return rules(body.format(first=first, gap=gap, straight=straight, after=after))

    # Eight wait states: four passes, three, and one of gfx950. The branch itself is one.
    assert of(enough - 1) == []
    assert of(enough - 2) == ["wait-states"]


_1K = "v_mfma_f32_16x16x16bf16_1k v[0:3], v[4:5], v[6:7], v[0:3]"
_OF_GFX942 = _1K.replace("16bf16_1k", "16_bf16")
_PARTLY = "v_mfma_f32_16x16x16{} v[16:19], v[4:5], v[6:7], v[2:5]"


@pytest.mark.parametrize(
    ("arch", "first", "second", "states"),
    [
        # By LLVM: passes + 3. gfx90a takes twice the passes, also for fp32.
        ("gfx942", _OF_GFX942, "v_mov_b32_e32 v9, v2", 7),
        ("gfx942", "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3]", "v_mov_b32_e32 v9, v2", 10),
        ("gfx942", _OF_GFX942, _PARTLY.format("_bf16"), 5),
        ("gfx942", "v_rcp_f32_e32 v1, v0", "v_mul_f32_e32 v2, v1, v3", 1),
        ("gfx90a", _1K, "v_mov_b32_e32 v9, v2", 11),
        ("gfx90a", "v_mfma_f32_32x32x8f16 v[0:15], v[20:21], v[22:23], v[0:15]", "v_mov_b32_e32 v40, v2", 19),
        ("gfx90a", "v_mfma_f32_16x16x4f32 v[0:3], v4, v5, v[0:3]", "v_mov_b32_e32 v9, v2", 11),
        ("gfx90a", _1K, _PARTLY.format("bf16_1k"), 8),
        ("gfx90a", "v_mfma_f32_4x4x4f16 v[0:3], v[4:5], v[6:7], v[0:3]", "v_mov_b32_e32 v9, v2", 5),
        ("gfx90a", "v_rcp_f32_e32 v1, v0", "v_mul_f32_e32 v2, v1, v3", 0),
        ("gfx90a", "v_cmp_eq_f32_e32 vcc, v0, v1", "v_div_fmas_f32 v2, v3, v4, v5", 4),
    ],
)
def test_wait_states_of_older_gfx9(arch: str, first: str, second: str, states: int) -> None:
    frame = _FRAME.replace("gfx950", arch)

    def found(count: int) -> list[str]:
        gap = [f"s_nop {min(left, 16) - 1}" for left in (count, count - 16) if left > 0]
        report = verify_assembly(frame.format(body="\n".join(f"\t{line}" for line in [first, *gap, second])))
        assert not report.incomplete
        return [finding.rule for finding in report.findings]

    assert found(states) == []
    if states:
        assert found(states - 1) == ["wait-states"]


def test_accesses_to_lds_at_constant_addresses() -> None:
    assert rules("v_mov_b32_e32 v0, 0xff0\nds_write_b128 v0, v[4:7]") == []
    assert rules("v_mov_b32_e32 v0, 0xff4\nds_write_b128 v0, v[4:7]") == ["lds-bounds"]
    assert rules("ds_read2_b64 v[4:7], v1 offset1:255\ns_waitcnt lgkmcnt(0)") == []
    assert rules("ds_read2st64_b64 v[4:7], v1 offset1:8\ns_waitcnt lgkmcnt(0)") == ["lds-bounds"]


def test_kernel_arguments() -> None:
    assert rules("s_load_dwordx4 s[4:7], s[0:1], 0x20") == []
    assert rules("s_load_dwordx4 s[4:7], s[0:1], 0x24") == ["kernarg-bounds"]
    assert rules("s_mov_b64 s[8:9], s[0:1]\ns_load_dwordx8 s[16:23], s[8:9], 0x20") == ["kernarg-bounds"]


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


def test_a_result_in_a_half_of_a_register_uses_the_other_half_only_if_it_is_kept() -> None:
    """So an address from a table in LDS is no data of an exchange where its register holds a result later."""
    body = """ds_read_b32 v2, v9
s_waitcnt lgkmcnt(0)
v_cvt_f16_f32_sdwa v2, v5 dst_sel:WORD_1 dst_unused:UNUSED_{rest} src0_sel:DWORD
global_store_dword v[6:7], v2, off
ds_write_b32 v9, v5"""
    assert rules(body.format(rest="PRESERVE")) == ["race"]
    assert rules(body.format(rest="PAD")) == []
