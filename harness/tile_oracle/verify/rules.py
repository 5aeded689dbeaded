"""The rules of the verifier. Each takes the state before an instruction and yields defects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_oracle.verify.counters import Counters, Outstanding
from tile_oracle.verify.instructions import LDS, Instruction
from tile_oracle.verify.registers import register_names
from tile_oracle.verify.wait_states import WaitStates, missing

RULES: dict[str, str] = {
    "vmcnt": "a vector load's register is read or overwritten before s_waitcnt vmcnt covers it",
    "lgkmcnt": "a scalar or LDS load's register is read or overwritten before s_waitcnt lgkmcnt covers it",
    "barrier": "an LDS write of the wave may be outstanding at s_barrier, after which other waves read",
    "read-across": "LDS is written while a read of it from before the last barrier may be outstanding",
    "async-reuse": "LDS is copied to while a wave's copy to it from before the last barrier may be in flight",
    "async-write": "LDS is written while a wave's copy to it may be in flight",
    "async-read": "LDS is read while a wave's copy to it may be in flight",
    "race": "no barrier lies between accesses to the same LDS by different waves, one of which writes",
    "wait-states": "fewer wait states lie between two instructions than the hardware needs",
    "lds-bounds": "an access to LDS at a constant address lies outside the allocation",
}
"""Rule -> description of its violation."""


@dataclass(frozen=True)
class Defect:
    """A violation of a rule. cause: index of the outstanding instruction, or None. proven: False where it
    could not be decided whether the rule is violated."""

    rule: str
    what: str
    cause: int | None = None
    proven: bool = True


def check_counters(state: Counters, one: Instruction) -> Iterator[Defect]:
    """Yields the rules on vmcnt, lgkmcnt, and writes to LDS at barriers."""
    touched = one.reads | one.writes | one.loads
    for counter, outstanding in (("vmcnt", state.vm), ("lgkmcnt", state.lgkm)):
        if touched & outstanding.loads:
            yield from _uncovered(counter, outstanding, one, touched)
    if one.barrier:
        for cause in state.lgkm.issued:
            if state.lgkm.code[cause].lds_write:
                yield Defect("barrier", "an LDS write may be outstanding at the barrier", cause)


def check_return(state: Counters, one: Instruction) -> Iterator[Defect]:
    """Yields the rule on functions that are called: they return nothing that is outstanding."""
    if not one.leaves or not one.line.mnemonic.startswith("s_setpc"):
        return
    for counter, outstanding in (("vmcnt", state.vm), ("lgkmcnt", state.lgkm)):
        for cause in outstanding.issued:
            if outstanding.code[cause].loads:
                yield Defect(counter, f"returns before {counter}(0) was waited for", cause)


def _uncovered(counter: str, state: Outstanding, one: Instruction, touched: int) -> Iterator[Defect]:
    vm = counter == "vmcnt"
    for cause, issued in state.issued.items():
        before = state.code[cause]
        overlap = before.loads & touched
        if not overlap:
            continue
        if vm:
            in_order = one.counts_vm and not one.counts_lgkm and not before.counts_lgkm
        else:
            in_order = one.counts_lgkm == before.counts_lgkm == LDS
        if in_order and not before.loads & (one.reads | one.writes):
            continue  # Loads return in order of issue.
        mixed = not vm and any(state.code[other].counts_lgkm != LDS for other in state.issued)
        younger = 0 if mixed else state.clock - issued
        verb = "reads" if overlap & one.reads else "overwrites"
        what = f"{verb} {register_names(overlap)} before {counter}({younger}) or less was waited for"
        yield Defect(counter, what, cause)


def check_wait_states(state: WaitStates, one: Instruction) -> Iterator[Defect]:
    """Yields the rule about wait states."""
    for owed in state.owed(one):
        yield Defect("wait-states", missing(owed), owed.cause)
