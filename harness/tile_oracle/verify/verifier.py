"""Verifies assembly: computes a fixpoint over each function's blocks, then applies the rules."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from tile_oracle.verify import bounds, counters, lds_use, wait_states
from tile_oracle.verify.assembly import Assembly, Function, parse_assembly
from tile_oracle.verify.bounds import Addresses, Segments, segments_of
from tile_oracle.verify.copy_places import moving_copies
from tile_oracle.verify.counted_loops import split_at_barriers, unrolled
from tile_oracle.verify.counters import Counters
from tile_oracle.verify.findings import Finding, FunctionReport, Report
from tile_oracle.verify.graph import Block, Graph, control_flow, reverse_postorder, shortest_path
from tile_oracle.verify.instructions import Instruction, decode
from tile_oracle.verify.lds_use import LdsUse, classify_reads
from tile_oracle.verify.rules import (
    Defect,
    check_counters,
    check_read_of_copies,
    check_return,
    check_wait_states,
    loops_without_barrier,
)
from tile_oracle.verify.wait_states import CHIPS, STRICTEST, Chip, WaitStates

_WAVE = 64
_BETWEEN_WAVES = ("race", "loop-barrier")
"""Rules about waves of one workgroup."""

ARCHITECTURES = tuple(CHIPS)
"""The architectures that the tables cover. Code for another one is held to the strictest."""


def verify_assembly(text: str, buffers: int | None = None) -> Report:
    """Verifies every function of a compiler's or disassembler's output.

    buffers: number of LDS buffers for tiles, 1 or 2; None when unknown (`lds_use`).

    Raises BuildError when the text has no function for an AMD GPU.
    """
    return verify_parsed(parse_assembly(text), buffers)


def verify_parsed(assembly: Assembly, buffers: int | None = None) -> Report:
    """Verifies every parsed function."""
    chip = CHIPS.get(assembly.target, STRICTEST)
    calls_wait = _calls_wait(assembly)
    functions = tuple(verify_function(function, buffers, chip, calls_wait) for function in assembly.functions)
    return Report(assembly.target, assembly.compiler, functions)


def _calls_wait(assembly: Assembly) -> bool:
    """Whether the text has functions besides its kernels, and each begins with a wait for everything, as
    LLVM's calling convention has it. Then a call is such a wait."""
    kernels = [function for function in assembly.functions if function.settings]
    called = [function for function in assembly.functions if not function.settings and function.lines]
    first = [decode(function.lines[0]) for function in called]
    return bool(kernels and called) and all(one.wait_vm == one.wait_lgkm == 0 for one in first)


def verify_function(
    function: Function, buffers: int | None = None, chip: Chip = STRICTEST, calls_wait: bool = False
) -> FunctionReport:
    """Verifies one function. calls_wait: whether functions that it calls wait for all that is outstanding."""
    code = [decode(line) for line in function.lines]
    graph = control_flow(function, code)
    findings = _Verification(function, code, graph, buffers, chip, calls_wait).findings()
    return FunctionReport(
        function.name,
        len(code),
        len(graph.blocks),
        tuple(findings),
        _incomplete(code, graph, calls_wait and not function.settings),
        _notes(function),
    )


def _incomplete(code: Sequence[Instruction], graph: Graph, returns: bool) -> tuple[str, ...]:
    """What was not followed. returns: whether s_setpc_b64 returns to a caller."""
    unknown = sorted({one.line.mnemonic for one in code if not one.known})
    unknown = [name for name in unknown if not (returns and name == "s_setpc_b64")]
    what = [f"{name} is not followed" for name in unknown]
    what += [f"line {code[at].line.number} branches out of the function" for at in graph.lost]
    return tuple(what)


def _notes(function: Function) -> tuple[str, ...]:
    settings = function.settings
    notes: list[str] = []
    if settings.get("private_segment_fixed_size"):
        notes.append(f"scratch: {settings['private_segment_fixed_size']} bytes a work-item")
    agprs = settings.get("next_free_vgpr", 0) - settings.get("accum_offset", 1 << 30)
    if agprs > 0:
        notes.append(f"accumulator registers: {agprs}")
    if function.hidden_arguments:
        notes.append(f"hidden arguments: {', '.join(function.hidden_arguments)}")
    return tuple(notes)


_State = tuple[Counters, WaitStates, Addresses, LdsUse]
_Frozen = tuple[counters._Frozen, wait_states._Frozen, bounds._Frozen, lds_use._Frozen]


class _Verification:
    """The verification of one function."""

    def __init__(
        self,
        function: Function,
        code: Sequence[Instruction],
        graph: Graph,
        buffers: int | None,
        chip: Chip,
        calls_wait: bool,
    ) -> None:
        self._chip = chip
        self._calls_wait = calls_wait
        self._is_called = calls_wait and not function.settings
        self._lds_use = LdsUse(classify_reads(code, graph), buffers)
        self._function, self._code, self._graph = function, code, graph
        self._ring = moving_copies(code, graph) if buffers is None else frozenset()
        """Copies whose number of buffers is not known: see the rule async-reuse."""
        self._has_waves = not 0 < function.most_threads <= _WAVE
        dynamic = not function.settings or function.settings.get("group_segment_fixed_size", 0) == 0
        self._segments: Segments = segments_of(function.settings, dynamic)

    def findings(self) -> list[Finding]:
        """The findings sorted by line, one for each rule, line and cause.

        If there are any, loops without a barrier are unrolled by the constants in scalar registers, and only
        what is found again counts.
        """
        found = self._found(split_at_barriers(self._graph, self._code))
        if found:
            found = self._found(unrolled(self._graph, self._code))
        return found

    def _found(self, graph: Graph) -> list[Finding]:
        """The findings in a graph whose blocks end at barriers."""
        found: dict[tuple[str, int, int | None, str], Finding] = {}
        for number, state in sorted(self._fixpoint(graph).items()):
            for at, defect in self._check(graph.blocks[number], self._thaw(state)):
                key = (defect.rule, at, defect.cause, defect.what if defect.cause is None else "")
                if key not in found:
                    found[key] = self._finding(at, defect)
        for write, read in loops_without_barrier(graph, self._code):
            what = "a loop may write and read LDS again without a barrier in between"
            found["loop-barrier", read, write, ""] = self._finding(read, Defect("loop-barrier", what, write))
        several = [one for one in found.values() if self._has_waves or one.rule not in _BETWEEN_WAVES]
        return sorted(several, key=lambda one: (one.line, one.cause_line, one.rule))

    def _fixpoint(self, graph: Graph) -> dict[int, _Frozen]:
        """The state at the entry of every reachable block."""
        at_entry = (
            counters.NOTHING,
            wait_states.NOTHING,
            Addresses.at_entry(self._segments).freeze(),
            lds_use.NOTHING,
        )
        order = reverse_postorder(graph)
        rank = {number: place for place, number in enumerate(order)}
        entry: dict[int, _Frozen] = {0: at_entry}
        waiting = [(0, 0)]
        while waiting:
            number = heapq.heappop(waiting)[1]
            block = graph.blocks[number]
            state = self._thaw(entry[number])
            count, states, addresses, use = state
            for at in range(block.begin, block.end):
                one = self._code[at]
                count.step(at, one)
                states.step(at, one)
                addresses.step(one)
                use.step(at, one)
            left = (count.freeze(), states.freeze(), addresses.freeze(), use.freeze())
            target = block.taken(self._code)
            if_taken = left
            if target is not None:
                states.branch()
                if_taken = (left[0], states.freeze(), *left[2:])
            for following in block.successors:
                after = if_taken if following == target else left
                there = entry.get(following)
                joined = after if there is None else _join(there, after)
                if joined != there:
                    entry[following] = joined
                    if (rank[following], following) not in waiting:
                        heapq.heappush(waiting, (rank[following], following))
        return entry

    def _thaw(self, frozen: _Frozen) -> _State:
        return (
            Counters.thaw(self._code, frozen[0], self._calls_wait),
            WaitStates.thaw(self._code, frozen[1], self._chip),
            Addresses.thaw(self._segments, frozen[2]),
            self._lds_use.thawed(frozen[3]),
        )

    def _check(self, block: Block, state: _State) -> Iterator[tuple[int, Defect]]:
        count, states, addresses, use = state
        for at in range(block.begin, block.end):
            one = self._code[at]
            for defect in check_counters(count, at, one, in_ring=at in self._ring):
                yield at, defect
            if count.copies and use.reads_only_buffer(at, one):
                for defect in check_read_of_copies(count):
                    yield at, defect
            if self._is_called:
                for defect in check_return(count, one):
                    yield at, defect
            for defect in check_wait_states(states, one):
                yield at, defect
            for defect in addresses.check(one):
                yield at, defect
            for defect in use.check(at, one):
                yield at, defect
            count.step(at, one)
            states.step(at, one)
            addresses.step(one)
            use.step(at, one)

    def _finding(self, at: int, defect: Defect) -> Finding:
        line = self._code[at].line
        cause = None if defect.cause is None else self._code[defect.cause].line
        return Finding(
            defect.rule,
            self._function.name,
            line.number,
            line.text,
            defect.what,
            0 if cause is None else cause.number,
            "" if cause is None else cause.text,
            () if defect.cause is None else self._path(defect.cause, at),
        )

    def _path(self, begin: int, end: int) -> tuple[str, ...]:
        """Names of the blocks on a shortest path between two instructions."""
        graph = self._graph
        place = {at: block.number for block in graph.blocks for at in range(block.begin, block.end)}
        first, last = place[begin], place[end]
        if first == last and begin < end:
            return (graph.blocks[first].name,)
        return tuple(graph.blocks[number].name for number in shortest_path(graph, first, last))


def _join(first: _Frozen, second: _Frozen) -> _Frozen:
    return (
        counters.join(first[0], second[0]),
        wait_states.join(first[1], second[1]),
        bounds.join(first[2], second[2]),
        lds_use.join(first[3], second[3]),
    )
