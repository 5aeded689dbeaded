"""Follows a kernel's paths with the values that its addresses in LDS depend on.

A loop over a ring of buffers, or of a constant length, has other addresses in each round:

    s_mov_b32 s4, 0
    loop:
    s_add_i32 m0, s4, s5          ; a copy into buffer s4 of two
    ...
    s_xor_b32 s4, s4, 0x4000
    s_cbranch_scc1 loop           ; for an unknown number of rounds

`follow_lds` copies the blocks for each set of values that they are entered with, and records for each copy
the bytes that its instructions access. Tracked are only registers that an address in LDS, or a branch that
does not depend on unknown data, is computed from, and of these only the bits that matter. So few copies are
needed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tile_oracle.verify.differences import (
    NARROWS,
    Differences,
    comparison_before,
    forget,
    restored_mask,
    shift,
    shift_of,
    where_exec_is_full,
)
from tile_oracle.verify.graph import Block, Graph, states_at_begins, states_before, strong_components
from tile_oracle.verify.instructions import Instruction
from tile_oracle.verify.lane_values import (
    ACROSS_LANES,
    ALL,
    EXEC_NUMBERS,
    SCC_NUMBER,
    VCC_NUMBERS,
    WAVE,
    Operation,
    Threads,
    Value,
    Values,
    accesses_lds,
    address_register,
    execute,
    lds_begins,
    least_end,
    operation_of,
)
from tile_oracle.verify.registers import EXEC, M0, SCALAR_REGISTERS, SCC, numbers_of, register_mask

_MOST_THREADS = 1024
_MOST_COPIES_OF_A_BLOCK = 48
"""Where a block is entered with more sets of values, those that differ count as unknown."""
_MOST_DIFFERENCES = 24
"""Where a block is entered with more sets of differences of registers, further ones count as unknown."""
_LDS_BYTES = 160 * 1024
"""The LDS of a gfx950 compute unit. Offsets up to 64 KiB more are still told apart."""
_MOST_BYTES = _LDS_BYTES + (1 << 16)
_FIRST_UNDEFINED, _VECTOR_REGISTERS = 3, 512
"""v0 to v2 are a thread's numbers; other vector registers have no value at the beginning."""
_IN_ACTIVE = 1 << 12
"""Added to a register's number: its value is that of the lanes which are active, others may have another."""
_IN_SAVED, _SAVED = 2 << 12, 3 << 12
"""Added to a wanted register's number: wanted in the lanes of a saved mask; the registers of that mask."""

_EVERYTHING = SCALAR_REGISTERS | M0 | SCC | EXEC | (1 << _VECTOR_REGISTERS) - 1

_Key = tuple[int, tuple[tuple[int, object], ...], tuple[tuple[tuple[int, int], int], ...]]
"""A block, and the values and differences of registers at its beginning."""


@dataclass(frozen=True)
class Footprint:
    """The bytes of LDS that each wave accesses, as bits. end: behind the last one if the address is constant,
    otherwise it reaches at least so far. all_lanes: False if it is not known which lanes are active; then the
    bytes are those of all."""

    by_wave: tuple[int, ...]
    end: int
    all_lanes: bool

    def meets(self, other: Footprint, own_wave: bool) -> bool:
        """Returns whether two waves access the same byte; with own_wave, also whether one wave does."""
        return any(
            mine & its
            for wave, mine in enumerate(self.by_wave)
            for others, its in enumerate(other.by_wave)
            if own_wave or wave != others
        )


@dataclass(frozen=True)
class LdsPaths:
    """A graph with copies of blocks. accesses: of each block, index of an instruction that accesses LDS ->
    number of its footprint in `footprints`; an address that is not known has none. merged: whether paths that
    differ were merged, because there are too many; then some of these may be impossible."""

    graph: Graph
    accesses: tuple[Mapping[int, int], ...]
    footprints: tuple[Footprint, ...]
    merged: bool = False


def follow_lds(
    graph: Graph,
    code: Sequence[Instruction],
    most_threads: int,
    without_value: Mapping[int, Sequence[str]] | None = None,
) -> LdsPaths:
    """Follows all paths of a kernel. most_threads: of a workgroup; 0: unknown, then only constants are."""
    if not any(accesses_lds(one) for one in code):
        return LdsPaths(graph, tuple({} for _ in graph.blocks), ())
    return _Paths(graph, code, most_threads, without_value or {}).followed()


class _Paths:
    """The copies of the blocks of one kernel."""

    def __init__(
        self,
        graph: Graph,
        code: Sequence[Instruction],
        most_threads: int,
        without_value: Mapping[int, Sequence[str]],
    ) -> None:
        self._graph, self._code = graph, code
        self._threads = Threads(-(-(most_threads or _MOST_THREADS) // WAVE))
        self._nothing = np.full(self._threads.waves * WAVE, -2, np.int64)
        self._undefined = {at: _mask_of(names) for at, names in without_value.items() if at < len(code)}
        """Index of an instruction -> the registers that have no value before it."""
        self._known_first = 1 if most_threads else 0
        """Mask of the vector registers that are known at the beginning: v0, the thread's number."""
        self._operations = [operation_of(one) for one in code]
        self._full = where_exec_is_full(graph, code)
        self._masks = [
            (0, 0) if one is None else (_mask(one.read()), _mask(one.written)) for one in self._operations
        ]
        without_lds = self._loops_without_lds()
        decided = self._branches_that_are_known() - without_lds
        for at in self._never_known():
            self._operations[at] = None
        self._shifts = [shift_of(one) for one in code]
        self._comparisons = {
            block.end - 1: found
            for block in graph.blocks
            if block.end - 1 not in without_lds
            and (found := comparison_before(block.end - 1, block.begin, code)) is not None
        }
        self._set_bits: set[int] = set()
        """Indices of s_or_b32 whose result a branch compares. They add if the bits are clear."""
        self._steps: dict[int, int] = {}
        """Masks of registers that branches compare -> the largest constant that is added."""
        self._compared = self._compared_at_blocks()
        self._restored = functools.reduce(operator.or_, map(restored_mask, code), 0)
        self._wanted, self._executed = self._wanted_at_blocks(decided)
        self._merged = False
        self._footprints: dict[Footprint, int] = {}
        self._values: dict[bytes, Value] = {}

    def followed(self) -> LdsPaths:
        """Explores all sets of values."""
        undefined = dict.fromkeys(range(_FIRST_UNDEFINED, _VECTOR_REGISTERS), self._nothing)
        number = {0: self._threads.number} if self._known_first else {}
        first = self._key(0, {**number, **undefined, **dict.fromkeys(EXEC_NUMBERS, ALL)}, {})
        waiting = [first]
        copies: dict[_Key, list[_Key]] = {}
        accesses: dict[_Key, dict[int, int]] = {}
        of_block: dict[int, list[_Key]] = {}
        while waiting:
            key = waiting.pop()
            if key in copies:
                continue
            of_block.setdefault(key[0], []).append(key)
            accesses[key], copies[key] = self._through(key, of_block)
            waiting += copies[key]
        order = sorted(copies, key=lambda one: (one[0], of_block[one[0]].index(one)))
        place = {key: at for at, key in enumerate(order)}
        blocks = tuple(
            replace(
                self._graph.blocks[key[0]],
                number=place[key],
                successors=tuple(dict.fromkeys(place[one] for one in copies[key])),
            )
            for key in order
        )
        graph = Graph(blocks, self._graph.lost)
        return LdsPaths(graph, tuple(accesses[key] for key in order), tuple(self._footprints), self._merged)

    def _through(
        self, key: _Key, of_block: Mapping[int, Sequence[_Key]]
    ) -> tuple[dict[int, int], list[_Key]]:
        """Returns the accesses of a block's copy, and the copies that may follow it."""
        block = self._graph.blocks[key[0]]
        values: Values = {
            number: self._values[value] if isinstance(value, bytes) else value  # type: ignore[misc]
            for number, value in key[1]
        }
        known = dict(key[2])
        accesses: dict[int, int] = {}
        for at in range(block.begin, block.end):
            one, operation = self._code[at], self._operations[at]
            by = self._shifts[at]
            if by is not None and at in self._set_bits:
                value = values.get(*numbers_of(by[1]))
                if isinstance(value, int) and not value & by[3]:
                    by = *by[:2], by[3], by[3]
            if one.leaves or not one.known:
                known.clear()
            elif by is not None and self._comparisons:
                shift(known, *by)
            elif known:
                forget(known, one.writes | one.loads)
            for number in numbers_of(self._undefined.get(at, 0)):
                values[number] = self._nothing
            if self._full[at]:
                values.update(dict.fromkeys(EXEC_NUMBERS, ALL))
            if accesses_lds(one):
                footprint = self._footprint(one, values, at)
                if footprint is not None:
                    accesses[at] = self._footprints.setdefault(footprint, len(self._footprints))
            if operation is not None and at in self._executed:
                self._execute(at, operation, values)
            else:
                operation = None
            self._forget(one, operation, values)
        return accesses, [
            self._narrowed(self._key(number, values, assumed), of_block)
            for number, assumed in self._compared_branch(block, self._feasible(block, values), known)
        ]

    def _compared_branch(
        self, block: Block, following: tuple[int, ...], known: Differences
    ) -> Iterator[tuple[int, Differences]]:
        """Yields the successors that the differences of registers allow, with the differences there."""
        comparison = self._comparisons.get(block.end - 1)
        for number in following:
            after = dict(known)
            if comparison is not None and len(block.successors) == 2:
                if_one = self._code[block.end - 1].line.mnemonic.endswith("1") == (
                    number == block.successors[0]
                )
                there = comparison if if_one else comparison.negated()
                if there.holds(after) is False:
                    continue
                there.assumed(after)
            yield number, after

    def _execute(self, at: int, operation: Operation, values: Values) -> None:
        """Executes an instruction. Where it is not known which lanes are active, its result holds for these,
        until others become active (`_forget`)."""
        is_full = self._full[at]
        in_active = operation.vector and operation.kind not in ACROSS_LANES
        if in_active and not is_full and any(values.get(number) is None for number in EXEC_NUMBERS):
            execute(operation, values, self._threads, True)
            values.update(dict.fromkeys((number + _IN_ACTIVE for number in operation.results), 1))
            return
        execute(operation, values, self._threads, is_full)
        if is_full:
            for number in operation.results:
                values.pop(number + _IN_ACTIVE, None)

    def _forget(self, one: Instruction, operation: Operation | None, values: Values) -> None:
        """Drops what the instruction changes in a way that is not computed."""
        if one.leaves or not one.known:
            values.clear()
            return
        known = () if operation is None else operation.written
        if one.writes & EXEC and one.line.mnemonic not in NARROWS:
            for number in [number for number in values if number >= _IN_ACTIVE]:
                values.pop(number)
                values.pop(number - _IN_ACTIVE, None)
        for number in numbers_of(one.writes | one.loads):
            if number not in known:
                values.pop(number, None)

    def _key(self, number: int, values: Values, known: Differences) -> _Key:
        """Returns the key of a block that is entered with these values and differences."""
        compared = self._compared[number]
        differences = []
        for pair, most in sorted(known.items()):
            # Larger differences count as this one. So a counter without an end has few of them.
            furthest = 2 * max(self._steps.get(one, 1) for one in pair)
            if not (pair[0] | pair[1]) & ~compared and most <= furthest:
                differences.append((pair, max(most, -furthest)))
        parts: list[tuple[int, object]] = []
        for register, bits in self._wanted[number].items():
            value = values.get(register)
            if value is None:
                continue
            if values.get(register + _IN_ACTIVE):
                parts.append((register + _IN_ACTIVE, 1))
            if isinstance(value, int):
                parts.append((register, value & bits))
                continue
            value = np.where(value < 0, value, value & bits)
            content = value.tobytes()
            self._values[content] = value
            parts.append((register, content))
        return number, tuple(sorted(parts, key=lambda one: one[0])), tuple(differences)

    def _narrowed(self, key: _Key, of_block: Mapping[int, Sequence[_Key]]) -> _Key:
        """Returns the key; without the values that differ, where a block has too many copies."""
        there = of_block.get(key[0], ())
        if key[2] and key not in there:
            same = sum(other[1] == key[1] for other in there)
            if same >= _MOST_DIFFERENCES:
                key, self._merged = (key[0], key[1], ()), True
        if len(there) < _MOST_COPIES_OF_A_BLOCK or key in there:
            return key
        self._merged = self._merged or bool(key[2])
        common = set(key[1])
        for other in there[_MOST_COPIES_OF_A_BLOCK - 1 :]:
            common &= set(other[1])
        first = set(there[0][1])
        return key[0], tuple(sorted(common & first, key=lambda one: one[0])), ()

    def _feasible(self, block: Block, values: Values) -> tuple[int, ...]:
        """Returns the successors that the values allow. If the waves differ, all of them."""
        successors, last = block.successors, self._code[block.end - 1]
        name = last.line.mnemonic
        condition = _CONDITIONS.get(name[:13])
        if len(successors) != 2 or condition is None:
            return successors
        parts = [values.get(number) for number in condition]
        if condition == EXEC_NUMBERS and self._full[block.end - 1]:
            parts = [ALL, ALL]
        known = [part for part in parts if isinstance(part, int)]
        if any(known):
            value = True
        elif len(known) == len(parts):
            value = False
        else:
            return successors
        jumps_if = name.endswith(("nz", "1"))
        return successors[:1] if value == jumps_if else successors[1:]

    def _footprint(self, one: Instruction, values: Values, at: int) -> Footprint | None:
        """Returns the bytes that an instruction accesses; None if they are not known."""
        begins = lds_begins(one, values, self._threads)
        if begins is None:
            return None
        active, all_lanes = None, self._full[at]
        if not all_lanes:
            active = self._threads.bits(*(values.get(number) for number in EXEC_NUMBERS))
        starts, width = begins
        if active is not None:
            starts = [np.where(active == 0, -2, start) for start in starts]
            all_lanes = bool((active >= 0).all())
        if any((start == -1).any() for start in starts):
            return None
        end = least_end(one)
        if isinstance(values.get(*numbers_of(address_register(one))), int):
            end = max(int(start.max()) for start in starts) + width
        length = min(max(int(start.max()) for start in starts) + 1, _MOST_BYTES + 1) + width
        by_wave = []
        for wave in range(self._threads.waves):
            bits = np.zeros(length, dtype=bool)
            for start in starts:
                mine = self._threads.by_wave(start)[wave]
                mine = np.minimum(mine[mine >= 0], _MOST_BYTES)
                bits[(mine[:, None] + np.arange(width)).ravel()] = True
            by_wave.append(int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little"))
        return Footprint(tuple(by_wave), end, all_lanes)

    def _branches_that_are_known(self) -> set[int]:
        """Indices of the conditional branches whose conditions do not depend on unknown data on any path."""
        return {
            at
            for at, unknown, _ in self._unknown(operator.or_)
            if (one := self._code[at]).conditional
            and not (0 if one.reads & EXEC and self._full[at] else one.reads) & unknown
        }

    def _never_known(self) -> set[int]:
        """Indices of the instructions whose result depends on unknown data on all paths."""
        return {
            at
            for at, _, after in self._unknown(operator.and_)
            if (operation := self._operations[at]) is not None
            and all(after >> one & 1 for one in operation.written)
        }

    def _unknown(self, join: Callable[[int, int], int]) -> list[tuple[int, int, int]]:
        """(index, the registers that depend on unknown data before it, those behind it) of each instruction
        that is reached."""
        undefined = (1 << _VECTOR_REGISTERS) - (1 << _FIRST_UNDEFINED)
        first = _EVERYTHING & ~EXEC & ~self._known_first & ~undefined
        return [
            (at, unknown, self._unknown_after(at, unknown))
            for at, unknown in states_before(self._graph, first, self._unknown_after, join)
        ]

    def _unknown_after(self, at: int, unknown: int) -> int:
        """Returns the registers that depend on unknown data behind an instruction."""
        one, operation = self._code[at], self._operations[at]
        unknown &= ~self._undefined.get(at, 0)
        if one.leaves or not one.known:
            return _EVERYTHING
        changed = one.writes | one.loads
        if operation is None:
            return unknown | changed
        reads, written = self._masks[at]
        if operation.kind == "into lane":
            return unknown & ~written  # other lanes may be known
        if operation.kind in ("mask", "first") and not self._full[at]:
            reads |= EXEC
        return unknown | changed if reads & unknown else (unknown | changed) & ~written

    def _loops_without_lds(self) -> set[int]:
        """Indices of the instructions in loops that neither access LDS nor wait at a barrier."""
        blocks = self._graph.blocks
        uses = [
            any(accesses_lds(one) or one.barrier for one in self._code[block.begin : block.end])
            for block in blocks
        ]
        found: set[int] = set()
        waiting = [set(range(len(blocks)))]
        while waiting:
            part = waiting.pop()
            edges = [
                [other for other in block.successors if other in part] if block.number in part else []
                for block in blocks
            ]
            for loop in strong_components(edges):
                if len(loop) == 1 and loop[0] not in edges[loop[0]]:
                    continue
                if not any(uses[number] for number in loop):
                    found.update(
                        at for number in loop for at in range(blocks[number].begin, blocks[number].end)
                    )
                    continue
                inside = set(loop)
                entered = {other for one in blocks if one.number not in inside for other in one.successors}
                waiting.append(inside - (entered or {loop[0]}))
        return found

    def _wanted_at_blocks(self, decided: set[int]) -> tuple[list[dict[int, int]], set[int]]:
        """Returns the registers and bits of each block's beginning that an address or a known branch depends
        on, and the indices of the instructions that compute such registers."""
        executed: set[int] = set()

        def before(block: Block, behind: Mapping[int, int]) -> dict[int, int]:
            live = dict(behind)
            for at in reversed(range(block.begin, block.end)):
                self._before(at, live, decided, executed)
            return live

        wanted = states_at_begins(
            self._graph, dict[int, int](), before, lambda one, other: _either(one, other.items())
        )
        plain = (((one % _IN_ACTIVE, bits) for one, bits in live.items() if one < _SAVED) for live in wanted)
        return [_either({}, live) for live in plain], executed

    def _compared_at_blocks(self) -> list[int]:
        """Returns the mask of the registers at each block's beginning that a branch compares, also
        shifted."""
        return states_at_begins(self._graph, 0, self._compared_before, operator.or_)

    def _compared_before(self, block: Block, live: int) -> int:
        comparison = self._comparisons.get(block.end - 1)
        if comparison is not None:
            live |= comparison.first | comparison.second
        for at in reversed(range(block.begin, block.end)):
            one, by = self._code[at], self._shifts[at]
            is_live = live & one.writes
            live &= ~(one.writes | one.loads)
            if by is not None and is_live:
                live |= by[1]
                for mask in by[:2]:
                    self._steps[mask] = max(self._steps.get(mask, 1), abs(by[2]), abs(by[3]))
                if one.line.mnemonic == "s_or_b32":
                    self._set_bits.add(at)
        return live

    def _before(self, at: int, live: dict[int, int], decided: set[int], executed: set[int]) -> None:
        """Changes the wanted bits behind an instruction to those before it. Those that are wanted only in the
        lanes which are active have numbers with `_IN_ACTIVE`: what other lanes had before does not matter.
        Behind the end of a branch of some lanes they are those of the mask that its begin saved."""
        one, operation = self._code[at], self._operations[at]
        is_full = self._full[at]

        def want(number: int, bits: int, in_active: bool = False) -> None:
            number += _IN_ACTIVE if in_active and number < _VECTOR_REGISTERS else 0
            live[number] = live.get(number, 0) | bits

        if one.writes & EXEC and one.line.mnemonic not in NARROWS:
            restored = restored_mask(one)
            for number in [number - _IN_ACTIVE for number in live if number // _IN_ACTIVE == 1]:
                bits = live.pop(number + _IN_ACTIVE)
                want(number + _IN_SAVED if restored else number, bits)
                if restored:
                    want(number + _SAVED, restored)
        if one.writes & self._restored:
            saved = register_mask(one.line.operands[0]) if one.line.mnemonic == NARROWS[0] else 0
            for number in [number - _SAVED for number in live if number >= _SAVED]:
                if live[number + _SAVED] & one.writes:
                    want(number, live.pop(number + _IN_SAVED), live.pop(number + _SAVED) == saved)
        into_lane = operation is not None and operation.kind == "into lane"
        written = numbers_of(one.writes | one.loads) if operation is None else operation.written
        behind = {
            number: live.get(number, 0) | live.get(number + _IN_ACTIVE, 0) | live.get(number + _IN_SAVED, 0)
            for number in written
        }
        for number in () if into_lane else written:
            live.pop(number + _IN_ACTIVE, None)
            if is_full or number >= _VECTOR_REGISTERS:
                for kind in (0, _IN_SAVED, _SAVED):
                    live.pop(number + kind, None)
        if operation is not None and any(behind.values()):
            executed.add(at)
            bits = functools.reduce(operator.or_, (behind[number] for number in operation.results), 0)
            if behind.get(SCC_NUMBER):
                bits = ALL
            for number, needed in operation.needed(bits):
                want(number, needed, one.vector and not into_lane and operation.kind != "lane")
            if one.vector and not is_full:
                live.update(dict.fromkeys(EXEC_NUMBERS, ALL))
        by = self._shifts[at]
        if by is not None and at in self._set_bits:
            want(numbers_of(by[1])[0], by[3])
        if accesses_lds(one):
            for number in numbers_of(address_register(one)):
                want(number, ALL, True)
            if not is_full:
                live.update(dict.fromkeys(EXEC_NUMBERS, ALL))
        if at in decided:
            for number in numbers_of(one.reads):
                live[number] = ALL
        for number in numbers_of(self._undefined.get(at, 0)):
            for kind in (0, _IN_ACTIVE, _IN_SAVED, _SAVED):
                live.pop(number + kind, None)
        if is_full:
            for number in EXEC_NUMBERS:
                live.pop(number, None)


_CONDITIONS = {
    "s_cbranch_scc": (SCC_NUMBER,),
    "s_cbranch_vcc": VCC_NUMBERS,
    "s_cbranch_exe": EXEC_NUMBERS,
}


def _either(first: Mapping[int, int], more: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Returns the bits of each register, with more bits of registers, each of which may be there again."""
    joined = dict(first)
    for register, bits in more:
        joined[register] = joined.get(register, 0) | bits
    return joined


def _mask_of(names: Iterable[str]) -> int:
    return functools.reduce(lambda mask, name: mask | register_mask(name), names, 0)


def _mask(numbers: Iterable[int]) -> int:
    return functools.reduce(lambda mask, number: mask | 1 << number, numbers, 0)
