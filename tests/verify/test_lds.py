"""The order of accesses to LDS, by the bytes that they touch: violations, valid code, what is not decided."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tile_oracle.verify.findings import Report
from tile_oracle.verify.verifier import verify_assembly

_FRAME = """\
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
\t.type\tkernel,@function
kernel:
{body}
\ts_endpgm
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size 65536
\t\t.amdhsa_kernarg_size 48
\t.end_amdhsa_kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .max_flat_workgroup_size: {threads}
    .name:           kernel
    .symbol:         kernel.kd
...
\t.end_amdgpu_metadata
"""

_PLACES = """v_lshlrev_b32_e32 v40, 4, v0
v_xor_b32_e32 v41, 0x400, v40
v_mov_b32_e32 v42, s2
v_readfirstlane_b32 s8, v0
s_nop 4
s_lshl_b32 s8, s8, 4
"""
"""v40: 16 bytes a thread. v41: those of another wave's thread. v42: unknown. s8: the wave's first of v40."""

_WAIT, _COPIED = "s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(0)"


def verified(body: str, threads: int = 256) -> Report:
    lines = (_PLACES + body).strip().splitlines()
    text = "\n".join(line if line.endswith(":") else f"\t{line}" for line in lines)
    return verify_assembly(_FRAME.format(body=text, threads=threads))


def rules(body: str, threads: int = 256) -> list[str]:
    """The rules that are violated; none may be undecided."""
    report = verified(body, threads)
    assert report.not_proven == ()
    return sorted({one.rule for one in report.findings})


def undecided(body: str) -> list[str]:
    report = verified(body)
    assert report.findings == ()
    return sorted({one.rule for one in report.not_proven})


def test_another_waves_data_need_a_barrier_and_ones_own_do_not() -> None:
    body = f"ds_write_b128 v40, v[4:7]\n{_WAIT}\n{{barrier}}\nds_read_b128 v[8:11], {{place}}"
    assert rules(body.format(barrier="s_barrier", place="v41")) == []
    assert rules(body.format(barrier="s_nop 0", place="v41")) == ["race"]
    assert rules(body.format(barrier="s_nop 0", place="v40")) == []
    assert rules(body.format(barrier="s_nop 0", place="v41 offset:8192")) == []
    assert undecided(body.format(barrier="s_nop 0", place="v42")) == ["race"]
    assert rules(body.format(barrier="s_barrier", place="v42")) == []


def test_a_workgroup_of_one_wave_needs_no_barriers() -> None:
    body = f"ds_write_b128 v40, v[4:7]\n{_WAIT}\nds_read_b128 v[8:11], v42"
    assert rules(body, threads=64) == []


def test_what_is_read_is_overwritten_behind_a_barrier_and_a_wait() -> None:
    body = "ds_read_b128 v[8:11], v41\n{wait}\n{barrier}\nds_write_b128 v40, v[4:7]"
    assert rules(body.format(wait=_WAIT, barrier="s_barrier")) == []
    assert rules(body.format(wait="s_nop 0", barrier="s_barrier")) == ["read-across"]
    assert rules(body.format(wait=_WAIT, barrier="s_nop 0")) == ["race"]


def test_two_waves_write_the_same_bytes() -> None:
    """As an epilogue whose exchange another wave's last tile overwrites. One instruction may write the same
    data in several waves."""
    body = f"ds_write_b128 v40, v[4:7]\n{_WAIT}\n{{barrier}}\nds_write_b128 v41, v[8:11]"
    assert rules(body.format(barrier="s_barrier")) == []
    assert rules(body.format(barrier="s_nop 0")) == ["race"]
    assert rules("v_and_b32_e32 v43, 0x3f0, v40\nds_write_b128 v43, v[4:7]") == []


def test_two_writes_in_a_disassembly_are_not_proven_to_meet() -> None:
    """It lacks the compiler's notes of registers without a value, which may stand for any place."""
    code = "kernel:\n\tv_mov_b32_e32 v1, 0\n\tds_write_b32 v1, v2\n\tds_write_b32 v1, v3\n\ts_endpgm\n"
    compiled = verify_assembly("\t.type\tkernel,@function\n" + code)
    assert [one.rule for one in compiled.findings] == ["race"]
    lines = code.splitlines()[1:]
    placed = [f"{line} // {0x1000 + 8 * at:012X}: D81A0000 00000201" for at, line in enumerate(lines)]
    report = verify_assembly("\n".join(["0000000000001000 <kernel>:", *placed]))
    assert (report.findings, [one.rule for one in report.not_proven]) == ((), ["race"])


_COPY = """s_mov_b32 m0, s8
s_nop 0
global_load_lds_dwordx4 v[12:13], off
"""


def test_copies_are_waited_for_before_the_barrier() -> None:
    """A wait behind it is for the wave's own copies only."""
    body = _COPY + "{before}\ns_barrier\n{behind}\nds_{access}"
    for access, rule in (("read_b128 v[8:11], v41", "async-read"), ("write_b128 v41, v[4:7]", "async-write")):
        assert rules(body.format(before=_COPIED, behind="s_nop 0", access=access)) == []
        assert rules(body.format(before="s_nop 0", behind="s_nop 0", access=access)) == [rule]
        assert rules(body.format(before="s_nop 0", behind=_COPIED, access=access)) == [rule]
        assert rules(body.format(before="s_nop 0", behind=f"{_COPIED}\ns_barrier", access=access)) == []
    own = body.format(before="s_nop 0", behind="{}", access="read_b128 v[8:11], v40")
    assert rules(own.format(_COPIED)) == [], "its own copy"
    assert rules(own.format("s_nop 0")) == ["async-read"]


def test_stores_and_copies_in_flight_to_different_bytes() -> None:
    """As a product with one operand through registers and the other by copies."""
    body = _COPY + "s_barrier\nds_write_b128 v40, v[4:7] offset:{at}"
    assert rules(body.format(at=4096)) == []
    assert rules(body.format(at=4080)) == ["async-write"]


def test_paths_with_copies_in_different_states() -> None:
    """The copy is in flight across the barrier on one path, and issued behind it on the other."""
    body = """s_mov_b32 m0, s8
s_cbranch_scc1 .LBB0_2
.LBB0_1:
global_load_lds_dwordx4 v[12:13], off
s_cbranch_scc0 .LBB0_3
.LBB0_2:
{wait}
s_barrier
s_cbranch_vccnz .LBB0_1
.LBB0_3:
ds_write_b128 v40, v[4:7]{offset}"""
    assert "async-write" in rules(body.format(wait=_COPIED, offset=""))
    assert rules(body.format(wait="s_nop 0", offset=" offset:4096")) == ["async-reuse"]
    assert rules(body.format(wait=_COPIED, offset=" offset:4096")) == []


def ring(slots: int, ahead: int, wait: int, barrier: str = "s_barrier", rounds: str = "s3") -> str:
    """A loop that copies tiles of 4,096 bytes `ahead` rounds before they are read, into `slots` buffers.
    wait: copies that may be in flight. rounds: an unknown number."""
    first = "\n".join(
        f"s_add_i32 m0, s8, {tile * 4096}\ns_nop 0\nglobal_load_lds_dwordx4 v[12:13], off"
        for tile in range(ahead)
    )
    advance = "s_add_i32 s{0}, s{0}, 0x1000\ns_cmp_lt_u32 s{0}, {1}\ns_cselect_b32 s{0}, s{0}, 0"
    return f"""{first}
s_mov_b32 s10, {ahead * 4096 % (slots * 4096)}
s_mov_b32 s11, 0
s_mov_b32 s12, 0
.LBB0_1:
s_waitcnt vmcnt({wait}) lgkmcnt(0)
{barrier}
v_add_u32_e32 v43, s11, v41
s_add_i32 m0, s8, s10
s_nop 0
global_load_lds_dwordx4 v[12:13], off
ds_read_b128 v[8:11], v43
{advance.format(10, slots * 4096)}
{advance.format(11, slots * 4096)}
s_add_i32 s12, s12, 1
s_cmp_lt_i32 s12, {rounds}
s_cbranch_scc1 .LBB0_1"""


@settings(max_examples=12)
@given(slots=st.integers(2, 6), ahead=st.integers(1, 5), wait=st.integers(0, 6))
def test_a_ring_of_buffers_is_read_from_its_addresses(slots: int, ahead: int, wait: int) -> None:
    """For an unknown number of rounds. A tile has landed if at most the copies behind it are in flight; its
    buffer is free when all waves have read it, one round later."""
    assume(ahead < slots)
    assert ("async-read" in rules(ring(slots, ahead, wait))) == (wait >= ahead)


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_a_ring_without_its_barrier(slots: int) -> None:
    assert rules(ring(slots, slots - 1, slots - 2)) == []
    assert "async-read" in rules(ring(slots, slots - 1, slots - 2, barrier="s_nop 0"))
    assert rules(ring(slots, slots - 1, 0, barrier="s_nop 0"))


def test_a_ring_whose_place_is_unknown_is_not_proven() -> None:
    unknown = ring(3, 2, 1).replace("s_mov_b32 s10, 8192", "s_mov_b32 s10, s4")
    assert "async-read" in undecided(unknown)
    assert undecided(unknown.replace("vmcnt(1)", "vmcnt(0)"))


def test_two_buffers_by_the_parity_of_an_unbounded_counter() -> None:
    """Of the counter only one bit matters, so the rounds have two states."""
    body = """s_mov_b32 s12, 0
ds_write_b128 v40, v[4:7]
.LBB0_1:
s_waitcnt lgkmcnt(0)
{barrier}
s_lshl_b32 s13, s12, 12
s_and_b32 s13, s13, 0x1000
v_add_u32_e32 v43, s13, v41
ds_read_b128 v[8:11], v43
s_xor_b32 s13, s13, 0x1000
v_add_u32_e32 v44, s13, v40
ds_write_b128 v44, v[4:7]
s_add_i32 s12, s12, 1
s_cmp_lt_i32 s12, s3
s_cbranch_scc1 .LBB0_1"""
    assert rules(body.format(barrier="s_barrier")) == []
    assert rules(body.format(barrier="s_nop 0")) == ["race"]
    assert rules(body.replace("s_xor_b32 s13, s13, 0x1000", "s_nop 0").format(barrier="s_barrier")) == [
        "race"
    ]


_ROLLED = """s_load_dword s9, s[0:1], 0x0
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
{compare}
{then}
s_cbranch_scc1 .LBB0_4
ds_write_b128 v40, v[4:7] offset:8192
s_branch .LBB0_6
.LBB0_4:
ds_read_b128 v[8:11], v41 offset:8192
.LBB0_6:
s_waitcnt lgkmcnt(0)
s_add_i32 s5, s4, 4
{barrier}
s_branch .LBB0_2
.LBB0_5:
s_sub_i32 s7, s7, 1
s_cmp_lg_u32 s7, 0
s_cbranch_scc1 .LBB0_1"""
"""A loop of two rounds: the counter s4 is 0, then 4. One writes and the other reads what a wave wrote."""

_BY_VCC = """s_cselect_b64 s[14:15], -1, 0
{}
s_and_b64 vcc, exec, s[14:15]
s_cbranch_vccnz .LBB0_4
s_cmp_lg_u32 s9, s9"""


@pytest.mark.parametrize(
    ("first", "compare", "then", "violated"),
    [
        ("0", "s_cmp_lg_u32 s4, 4", "s_nop 0", True),
        ("0", "s_cmp_le_i32 s4, -1", "s_nop 0", False),
        ("0", "s_cmp_lg_u32 s6, 5", "s_nop 0", True),
        ("s9", "s_cmp_le_i32 s4, -1", "s_nop 0", True),
        ("0", "s_cmp_lg_u32 s4, s9", "s_nop 0", True),
        ("0", "s_cmp_le_i32 s4, -1", "s_and_b32 s10, s9, 1", True),
        ("0", "s_cmp_ge_i32 s4, 0", "s_nop 0", False),
        ("0", "s_cmp_ge_i32 s4, 0", _BY_VCC.format("s_or_b64 s[14:15], s[14:15], s[18:19]"), True),
        ("0", "s_cmp_ge_i32 s4, 0", _BY_VCC.format("s_nop 0"), False),
    ],
    ids=[
        "reads, then writes",
        "writes in both rounds",
        "by a register computed from the counter",
        "starts at an unknown number",
        "compares with an unknown number",
        "loses the comparison",
        "reads in both rounds",
        "by vcc and something unknown",
        "by vcc",
    ],
)
def test_a_loop_of_constant_length_is_followed_by_its_counter(
    first: str, compare: str, then: str, violated: bool
) -> None:
    body = _ROLLED.format(first=first, compare=compare, then=then, barrier="s_nop 0")
    assert bool(rules(body)) == violated
    safe = _ROLLED.format(first=first, compare=compare, then=then, barrier="s_barrier")
    assert rules(safe) == []


def test_lanes_that_are_not_known_to_be_active() -> None:
    """A copy by some lanes and zeros by the others: which they are depends on an argument."""
    body = f"""v_cmp_gt_i32_e32 vcc, s3, v0
s_and_saveexec_b64 s[4:5], vcc
s_xor_b64 s[4:5], exec, s[4:5]
s_cbranch_execz .LBB0_2
{_COPY.strip()}
.LBB0_2:
s_andn2_saveexec_b64 s[4:5], s[4:5]
s_cbranch_execz .LBB0_4
v_add_u32_e32 v43, 0, v40
ds_write_b128 v43, v[4:7]
.LBB0_4:
s_or_b64 exec, exec, s[4:5]"""
    assert undecided(body) == ["async-write"]
    known = body.replace("v_cmp_gt_i32_e32 vcc, s3, v0", "v_cmp_gt_u32_e32 vcc, 64, v0")
    assert rules(known) == [], "the first wave copies, the others write"


def test_an_address_from_spilled_registers() -> None:
    body = f"""v_writelane_b32 v60, s3, 1
v_writelane_b32 v60, s8, 0
s_nop 0
v_readlane_b32 s20, v60, 0
s_nop 4
v_add_u32_e32 v43, s20, v0
ds_write_b8 v43, v4
{_WAIT}
ds_read_u8 v5, v41{{}}"""
    assert rules(body.format("")) == ["race"]
    assert rules(body.format(" offset:4096")) == []


def _steps_of_a_ring(add: str, count: int, last_bound: str = "s17", second: str = "0x1000") -> str:
    """A loop of `count` steps, each if its number is below an unknown bound. Two buffers take turns."""
    lines = ["s_mov_b32 s16, 0", "s_load_dword s17, s[4:5], 0x0", "s_load_dword s20, s[4:5], 0x4", _WAIT]
    lines += ["loop:"]
    for step in range(count):
        bound = last_bound if step == count - 1 else "s17"
        lines += [f"{add} s19, s16, {step}", f"s_cmp_ge_i32 s19, {bound}", f"s_cbranch_scc1 skip{step}"]
        lines += ["s_bitcmp1_b32 s19, 0", f"s_cselect_b32 s18, {second}, 0"]
        lines += ["v_add_u32_e32 v43, s18, v40", "v_add_u32_e32 v44, s18, v41", "ds_write_b128 v43, v[4:7]"]
        lines += [_WAIT, "s_barrier", "ds_read_b128 v[8:11], v44", _WAIT, f"skip{step}:"]
    lines += [f"s_add_i32 s16, s16, {count}", "s_cmp_lt_i32 s16, s17", "s_cbranch_scc1 loop"]
    return "\n".join(lines)


@pytest.mark.parametrize(("add", "count"), [("s_add_i32", 3), ("s_or_b32", 2), ("s_or_b32", 4)])
def test_a_step_that_is_skipped_is_the_last(add: str, count: int) -> None:
    """If step 1 is behind the bound, step 2 is, too: the next write is never to the buffer just read."""
    assert rules(_steps_of_a_ring(add, count)) == []
    assert rules(_steps_of_a_ring(add, count, second="0")) == ["race"]


def test_steps_with_unrelated_bounds_may_be_skipped() -> None:
    assert rules(_steps_of_a_ring("s_add_i32", 2, last_bound="s20")) == ["race"]


def test_paths_that_are_too_many_to_tell_apart_are_not_findings() -> None:
    """Two bounds and four steps in a loop: some of the paths may be impossible."""
    assert undecided(_steps_of_a_ring("s_add_i32", 4, last_bound="s20")) == ["race"]
