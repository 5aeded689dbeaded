"""Verifies assembly: computes a fixpoint over each function's blocks, then applies the rules."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tile_oracle.verify import counters, lds_accesses, wait_states
from tile_oracle.verify.assembly import Assembly, Function, parse_assembly
from tile_oracle.verify.counters import Counters
from tile_oracle.verify.findings import Finding, FunctionReport, Report
from tile_oracle.verify.graph import Graph, control_flow, reverse_postorder, shortest_path
from tile_oracle.verify.instructions import Instruction, decode
from tile_oracle.verify.lds_accesses import UNKNOWN, LdsAccesses
from tile_oracle.verify.lds_paths import follow_lds
from tile_oracle.verify.rules import Defect, check_counters, check_return, check_wait_states
from tile_oracle.verify.wait_states import CHIPS, STRICTEST, Chip, WaitStates

_WAVE = 64
_MOST_NOT_PROVEN = 100
"""Of a function. One is enough to know."""


def verify_assembly(text: str) -> Report:
    """Verifies every function of a compiler's or disassembler's output.

    Raises BuildError when the text has no function for an AMD GPU.
    """
    return verify_parsed(parse_assembly(text))


def verify_parsed(assembly: Assembly) -> Report:
    """Verifies every parsed function."""
    chip = CHIPS.get(assembly.target, STRICTEST)
    calls_wait = _calls_wait(assembly)
    functions = tuple(verify_function(function, chip, calls_wait) for function in assembly.functions)
    return Report(assembly.target, assembly.compiler, functions)


def _calls_wait(assembly: Assembly) -> bool:
    """Returns whether the text has functions besides its kernels, and each begins with a wait for everything,
    as LLVM's calling convention has it. Then a call is such a wait."""
    kernels = [function for function in assembly.functions if function.settings]
    called = [function for function in assembly.functions if not function.settings and function.lines]
    first = [decode(function.lines[0]) for function in called]
    return bool(kernels and called) and all(one.wait_vm == one.wait_lgkm == 0 for one in first)


def verify_function(function: Function, chip: Chip = STRICTEST, calls_wait: bool = False) -> FunctionReport:
    """Verifies one function. calls_wait: whether functions that it calls wait for all that is outstanding."""
    code = [decode(line) for line in function.lines]
    graph = control_flow(function, code)
    findings, not_proven = _Verification(function, code, graph, chip, calls_wait).findings()
    return FunctionReport(
        function.name,
        len(code),
        len(graph.blocks),
        findings,
        not_proven,
        _incomplete(code, graph, calls_wait and not function.settings),
    )


def _incomplete(code: Sequence[Instruction], graph: Graph, returns: bool) -> tuple[str, ...]:
    """Returns what was not followed. returns: whether s_setpc_b64 returns to a caller."""
    unknown = sorted({one.line.mnemonic for one in code if not one.known})
    unknown = [name for name in unknown if not (returns and name == "s_setpc_b64")]
    what = [f"{name} is not followed" for name in unknown]
    what += [f"line {code[at].line.number} branches out of the function" for at in graph.lost]
    return tuple(what)


_State = tuple[Counters, WaitStates, LdsAccesses]
_Frozen = tuple[counters._Frozen, wait_states._Frozen, lds_accesses._Frozen]
_Findings = tuple[Finding, ...]


class _Verification:
    """The verification of one function."""

    def __init__(
        self, function: Function, code: Sequence[Instruction], graph: Graph, chip: Chip, calls_wait: bool
    ) -> None:
        self._chip = chip
        self._calls_wait = calls_wait
        self._is_called = calls_wait and not function.settings
        self._function, self._code, self._graph = function, code, graph
        self._paths = follow_lds(graph, code, function.most_threads, function.without_value)
        has_waves = not 0 < function.most_threads <= _WAVE
        disassembled = any(one.address is not None for one in function.lines)
        self._lds = LdsAccesses(
            code,
            self._paths.footprints,
            has_waves,
            function.settings.get("group_segment_fixed_size") or None,  # dynamic LDS has no size here
            disassembled,
            self._paths.merged,
        )

    def findings(self) -> tuple[_Findings, _Findings]:
        """Returns the findings, and what is not proven, sorted by line, one for each rule, line and cause."""
        found: dict[tuple[str, int, int | None, str], Finding] = {}
        undecided: dict[tuple[str, int, int | None, str], Finding] = {}
        for number, state in sorted(self._fixpoint().items()):
            for at, defect in self._check(number, self._thaw(state)):
                key = (defect.rule, at, defect.cause, defect.what if defect.cause is None else "")
                where = found if defect.proven else undecided
                if key not in where and (defect.proven or len(undecided) < _MOST_NOT_PROVEN):
                    where[key] = self._finding(at, defect)
        undecided = {key: one for key, one in undecided.items() if key not in found}
        first, second = (
            tuple(sorted(some.values(), key=lambda one: (one.line, one.cause_line, one.rule)))
            for some in (found, undecided)
        )
        return first, second

    def _fixpoint(self) -> dict[int, _Frozen]:
        """Returns the state at the entry of every reachable block."""
        graph = self._paths.graph
        at_entry = (counters.NOTHING, wait_states.NOTHING, lds_accesses.NOTHING)
        order = reverse_postorder(graph)
        rank = {number: place for place, number in enumerate(order)}
        entry: dict[int, _Frozen] = {0: at_entry}
        waiting = [(0, 0)]
        while waiting:
            number = heapq.heappop(waiting)[1]
            block = graph.blocks[number]
            state = self._thaw(entry[number])
            for at in range(block.begin, block.end):
                self._step(number, at, state)
            count, states, accesses = state
            left = (count.freeze(), states.freeze(), accesses.freeze())
            target = block.taken(self._code)
            if_taken = left
            if target is not None:
                states.branch()
                if_taken = (left[0], states.freeze(), left[2])
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
            self._lds.thawed(frozen[2]),
        )

    def _step(self, number: int, at: int, state: _State) -> None:
        """Executes an instruction of a block."""
        count, states, accesses = state
        one = self._code[at]
        accesses.step(at, one, self._paths.accesses[number].get(at, UNKNOWN), count.waits(one))
        count.step(at, one)
        states.step(at, one)

    def _check(self, number: int, state: _State) -> Iterator[tuple[int, Defect]]:
        count, states, accesses = state
        block = self._paths.graph.blocks[number]
        for at in range(block.begin, block.end):
            one = self._code[at]
            footprint = self._paths.accesses[number].get(at, UNKNOWN)
            for defect in (
                *check_counters(count, one),
                *(check_return(count, one) if self._is_called else ()),
                *check_wait_states(states, one),
                *accesses.check(at, one, footprint),
            ):
                yield at, defect
            self._step(number, at, state)

    def _finding(self, at: int, defect: Defect) -> Finding:
        line = self._code[at].line
        found = Finding(defect.rule, self._function.name, line.number, line.text, defect.what)
        if defect.cause is None:
            return found
        cause = self._code[defect.cause].line
        path = self._path(defect.cause, at)
        return replace(found, cause_line=cause.number, cause=cause.text, path=path)

    def _path(self, begin: int, end: int) -> tuple[str, ...]:
        """Returns the names of the blocks on a shortest path between two instructions."""
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
        lds_accesses.join(first[2], second[2]),
    )
