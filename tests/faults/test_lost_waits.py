"""A sample of the campaign of broken waits, on one kernel in C++."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tile_oracle.compiling.builder import Builder
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.verify.verifier import verify_assembly
from tools.faults.lost_waits import _REWRITINGS, ARCH, NATIVE, broken_ways, run


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("lost_waits")
    with Builder(ARCH, build_dir=folder, runs_here=False) as builder:
        return builder.assembly(parse_kernel_name(NATIVE[2]))


@pytest.mark.slow
def test_broken_kernels_are_found_and_right_rewritings_are_not(text: str) -> None:
    outcome = run(25, 7, [("compv4", text)])
    assert outcome.failures == []
    assert outcome.counts["broken kernels: found"] == 20
    assert outcome.counts["right rewritings: clean"] == 5


def test_a_trace_shows_that_a_kernel_is_broken(text: str) -> None:
    """By definition, without the verifier."""

    def broken(changed: str) -> bool:
        return any(True for _ in broken_ways(changed, range(6)))

    assert not broken(text)
    assert broken(text.replace("s_waitcnt vmcnt(0)", "s_nop 0"))
    assert broken(text.replace("s_barrier", "s_nop 0"))


def test_a_rewriting_leaves_the_wait_states_of_both_its_neighbours() -> None:
    """The mask needs two wait states in front of its use."""
    code = [
        "v_cmp_gt_u32_e32 vcc, 1, v0",
        "s_nop 0",
        "v_add_u32_e32 v4, 1, v3",
        "v_cndmask_b32_e32 v5, 0, v2, vcc",
    ]
    lines = ["\t.type\tx,@function", "x:", *(f"\t{line}" for line in [*code, "s_endpgm"])]
    assert not verify_assembly("\n".join(lines)).findings
    _, exchange = _REWRITINGS[-1]
    exchanged = exchange(lines, 4, random.Random(0))
    assert exchanged != lines
    assert not verify_assembly("\n".join(exchanged)).findings
