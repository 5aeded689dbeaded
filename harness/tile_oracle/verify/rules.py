"""The rules of the verifier. Each takes the state before an instruction and yields defects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tile_oracle.verify.counters import IN_FLIGHT, IN_FLIGHT_SINCE_BARRIER, LANDED_SINCE_BARRIER, Counters
from tile_oracle.verify.graph import Block, Graph
from tile_oracle.verify.instructions import LDS, SCALAR_LOAD, Instruction
from tile_oracle.verify.registers import register_names
from tile_oracle.verify.wait_states import WaitStates, missing

RULES: dict[str, str] = {
    "vmcnt": "a vector load's register is read or overwritten before s_waitcnt vmcnt covers it",
    "lgkmcnt": "a scalar or LDS load's register is read or overwritten before s_waitcnt lgkmcnt covers it",
    "barrier": "an LDS write of the wave may be outstanding at s_barrier, after which other waves read",
    "read-across": "LDS is written while a read from before the last barrier may be outstanding in a wave",
    "async-reuse": "a copy to LDS is issued again before its last data was waited for and a barrier passed",
    "async-write": "LDS is written while a wave's copy to LDS from before the last barrier may be in flight",
    "async-read": "a tile is read, and a copy to the only buffer was not waited for before the last barrier",
    "loop-barrier": "a loop both writes and reads LDS, and may repeat the write without a barrier",
    "race": "no barrier lies between accesses to the same LDS by different waves, one of which writes",
    "wait-states": "fewer wait states lie between two instructions than the hardware needs",
    "lds-bounds": "an access to LDS at a constant address lies outside the allocation",
    "kernarg-bounds": "a kernel argument is read outside the argument segment",
}
"""Rule -> description of its violation."""


@dataclass(frozen=True)
class Defect:
    """A violation of a rule. cause: index of the outstanding instruction, or None."""

    rule: str
    what: str
    cause: int | None = None


def check_counters(state: Counters, at: int, one: Instruction, *, in_ring: bool = False) -> Iterator[Defect]:
    """The rules on vmcnt, lgkmcnt, barriers and copies to LDS. in_ring: the instruction copies to another
    buffer in every round, and nobody knows to how many."""
    touched = one.reads | one.writes | one.loads
    if touched & state.vm_loads:
        yield from _uncovered_vm(state, one, touched)
    if touched & state.lgkm_loads:
        yield from _uncovered_lgkm(state, one, touched)
    if one.barrier:
        for cause in state.lgkm:
            if state.code[cause].lds_write:
                yield Defect("barrier", "an LDS write may be outstanding at the barrier", cause)
    if state.read_across and (one.lds_write or one.to_lds):
        cause = min(state.read_across)
        yield Defect(
            "read-across", "LDS is written, and a read from before the barrier may be outstanding", cause
        )
    if state.copies:
        if one.to_lds and at in state.copies and not in_ring:
            yield Defect(
                "async-reuse", "the copy is issued again, and its last data may not be there yet", at
            )
        if one.lds_write:
            for cause, phase in state.copies.items():
                if phase & IN_FLIGHT_SINCE_BARRIER:
                    yield Defect("async-write", "LDS is written while a copy to it may be in flight", cause)
                elif phase & LANDED_SINCE_BARRIER:
                    what = "LDS is written while another wave's copy to it may be in flight"
                    yield Defect("async-write", what, cause)


def check_read_of_copies(state: Counters) -> Iterator[Defect]:
    """The rule on reads of a tile from the only buffer: copies to it were waited for before the barrier."""
    for cause, phase in state.copies.items():
        if phase & (IN_FLIGHT | IN_FLIGHT_SINCE_BARRIER | LANDED_SINCE_BARRIER):
            yield Defect("async-read", "LDS is read, and a copy to it may be in flight in a wave", cause)


def check_return(state: Counters, one: Instruction) -> Iterator[Defect]:
    """The rule on functions that are called: they return nothing that is outstanding."""
    if not one.leaves or not one.line.mnemonic.startswith("s_setpc"):
        return
    for counter, outstanding in (("vmcnt", state.vm), ("lgkmcnt", state.lgkm)):
        for cause in outstanding:
            if state.code[cause].loads:
                yield Defect(counter, f"returns before {counter}(0) was waited for", cause)


def _uncovered_vm(state: Counters, one: Instruction, touched: int) -> Iterator[Defect]:
    for cause, issued in state.vm.items():
        before = state.code[cause]
        overlap = before.loads & touched
        if not overlap:
            continue
        in_order = one.counts_vm and not one.counts_lgkm and not before.counts_lgkm
        if in_order and not before.loads & (one.reads | one.writes):
            continue  # Loads return in order of issue.
        younger = state.vm_clock - issued
        yield Defect("vmcnt", _not_covered(one, overlap, "vmcnt", younger), cause)


def _uncovered_lgkm(state: Counters, one: Instruction, touched: int) -> Iterator[Defect]:
    for cause, issued in state.lgkm.items():
        before = state.code[cause]
        overlap = before.loads & touched
        if not overlap:
            continue
        in_order = one.counts_lgkm == before.counts_lgkm == LDS
        if in_order and not before.loads & (one.reads | one.writes):
            continue
        mixed = before.counts_lgkm == SCALAR_LOAD or any(
            state.code[other].counts_lgkm != LDS for other in state.lgkm
        )
        younger = 0 if mixed else state.lgkm_clock - issued
        yield Defect("lgkmcnt", _not_covered(one, overlap, "lgkmcnt", younger), cause)


def _not_covered(one: Instruction, overlap: int, counter: str, younger: int) -> str:
    verb = "reads" if overlap & one.reads else "overwrites"
    return f"{verb} {register_names(overlap)} before {counter}({younger}) or less was waited for"


def check_wait_states(state: WaitStates, one: Instruction) -> Iterator[Defect]:
    """The rule about wait states."""
    for owed in state.owed(one):
        yield Defect("wait-states", missing(owed), owed.cause)


def loops_without_barrier(graph: Graph, code: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    """(index of an LDS write, index of an LDS read) on a path without a barrier from the write to itself.

    graph: its blocks end at barriers; several of them may have the same instructions.
    """
    edges = [() if code[block.end - 1].barrier else block.successors for block in graph.blocks]
    back: list[list[int]] = [[] for _ in edges]
    for number, successors in enumerate(edges):
        for following in successors:
            back[following].append(number)
    copies: dict[int, list[int]] = {}
    for block in graph.blocks:
        copies.setdefault(block.begin, []).append(block.number)
    for same in copies.values():
        block = graph.blocks[same[0]]
        writes = [at for at in _places(block) if code[at].lds_write or code[at].to_lds]
        round_ = _reached(edges, same) & _reached(back, same) if writes else set()
        reads = [at for number in round_ for at in _places(graph.blocks[number]) if code[at].lds_read]
        if reads:
            yield writes[0], min(reads)


def _places(block: Block) -> range:
    return range(block.begin, block.end)


def _reached(edges: Sequence[Sequence[int]], begin: Sequence[int]) -> set[int]:
    """The nodes that a path of at least one step reaches."""
    seen: set[int] = set()
    waiting = [following for number in begin for following in edges[number]]
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            waiting += edges[number]
    return seen
