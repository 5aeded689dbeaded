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
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tile_oracle.verify.graph import Block, Graph, strong_components
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
    execute,
    numbers_of,
    operation_of,
)
from tile_oracle.verify.registers import EXEC, M0, SCALAR_REGISTERS, SCC, VCC, register_mask

_MOST_THREADS = 1024
_MOST_COPIES_OF_A_BLOCK = 48
"""Where a block is entered with more sets of values, those that differ count as unknown."""
_LDS_BYTES = 160 * 1024
"""The LDS of a gfx950 compute unit. Offsets up to 64 KiB more are still told apart."""
_MOST_BYTES = _LDS_BYTES + (1 << 16)
_FIRST_UNDEFINED, _VECTOR_REGISTERS = 3, 512
"""v0 to v2 are a thread's numbers; other vector registers have no value at the beginning."""
_IN_ACTIVE = 1 << 12
"""Added to a register's number: its value is that of the lanes which are active, others may have another."""
_NARROWS = ("s_and_saveexec_b64", "s_and_b64", "s_andn2_b64")
"""Instructions after which no lane is active that was not before."""
_OFFSET = re.compile(r"offset([01]?):(\d+)")
_BITS = re.compile(r"_(?:b|u|i|f)(8|16|32|64|96|128)")
_COPIED_DWORDS = re.compile(r"dword(?:x([34]))?")

_EVERYTHING = SCALAR_REGISTERS | M0 | SCC | EXEC | (1 << _VECTOR_REGISTERS) - 1

_Key = tuple[int, tuple[tuple[int, object], ...]]
"""A block, and the values at its beginning."""


@dataclass(frozen=True)
class Footprint:
    """The bytes of LDS that each wave accesses, as bits. end: behind the last one if the address is constant,
    otherwise it reaches at least so far. all_lanes: False if it is not known which lanes are active; then the
    bytes are those of all."""

    by_wave: tuple[int, ...]
    end: int
    all_lanes: bool

    def meets(self, other: Footprint, own_wave: bool) -> bool:
        """Whether two waves access the same byte; with own_wave, also whether one wave does."""
        return any(
            mine & its
            for wave, mine in enumerate(self.by_wave)
            for others, its in enumerate(other.by_wave)
            if own_wave or wave != others
        )


@dataclass(frozen=True)
class LdsPaths:
    """A graph with copies of blocks. accesses: of each block, index of an instruction that accesses LDS ->
    number of its footprint in `footprints`; an address that is not known has none."""

    graph: Graph
    accesses: tuple[Mapping[int, int], ...]
    footprints: tuple[Footprint, ...]


def follow_lds(
    graph: Graph,
    code: Sequence[Instruction],
    most_threads: int,
    without_value: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> LdsPaths:
    """Follows all paths of a kernel. most_threads: of a workgroup; 0: unknown, then only constants are."""
    if not any(_accesses_lds(one) for one in code):
        return LdsPaths(graph, tuple({} for _ in graph.blocks), ())
    return _Paths(graph, code, most_threads, without_value).followed()


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
        self._full = _where_exec_is_full(graph, code)
        self._masks = [
            (0, 0) if one is None else (_mask(one.read()), _mask(one.written)) for one in self._operations
        ]
        decided = self._branches_that_are_known()
        for at in self._never_known():
            self._operations[at] = None
        self._wanted, self._executed = self._wanted_at_blocks(decided)
        self._footprints: dict[Footprint, int] = {}
        self._values: dict[bytes, Value] = {}

    def followed(self) -> LdsPaths:
        """Explores all sets of values."""
        undefined = dict.fromkeys(range(_FIRST_UNDEFINED, _VECTOR_REGISTERS), self._nothing)
        number = {0: self._threads.number} if self._known_first else {}
        first = self._key(0, {**number, **undefined, **dict.fromkeys(EXEC_NUMBERS, ALL)})
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
        return LdsPaths(graph, tuple(accesses[key] for key in order), tuple(self._footprints))

    def _through(
        self, key: _Key, of_block: Mapping[int, Sequence[_Key]]
    ) -> tuple[dict[int, int], list[_Key]]:
        """The accesses of a block's copy, and the copies that may follow it."""
        block = self._graph.blocks[key[0]]
        values: Values = {
            number: self._values[value] if isinstance(value, bytes) else value  # type: ignore[misc]
            for number, value in key[1]
        }
        accesses: dict[int, int] = {}
        for at in range(block.begin, block.end):
            one, operation = self._code[at], self._operations[at]
            for number in numbers_of(self._undefined.get(at, 0)):
                values[number] = self._nothing
            if self._full[at]:
                values.update(dict.fromkeys(EXEC_NUMBERS, ALL))
            if _accesses_lds(one):
                footprint = self._footprint(one, values, at)
                if footprint is not None:
                    accesses[at] = self._footprints.setdefault(footprint, len(self._footprints))
            if operation is not None and at in self._executed:
                self._execute(at, operation, values)
            else:
                operation = None
            self._forget(one, operation, values)
        following = self._feasible(block, values)
        return accesses, [self._narrowed(self._key(number, values), of_block) for number in following]

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
        if one.writes & EXEC and one.line.mnemonic not in _NARROWS:
            for number in [number for number in values if number >= _IN_ACTIVE]:
                values.pop(number)
                values.pop(number - _IN_ACTIVE, None)
        for number in numbers_of(one.writes | one.loads):
            if number not in known:
                values.pop(number, None)

    def _key(self, number: int, values: Values) -> _Key:
        """The key of a block that is entered with these values."""
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
        return number, tuple(sorted(parts, key=lambda one: one[0]))

    def _narrowed(self, key: _Key, of_block: Mapping[int, Sequence[_Key]]) -> _Key:
        """The key; without the values that differ, where a block has too many copies."""
        there = of_block.get(key[0], ())
        if len(there) < _MOST_COPIES_OF_A_BLOCK or key in there:
            return key
        common = set(key[1])
        for other in there[_MOST_COPIES_OF_A_BLOCK - 1 :]:
            common &= set(other[1])
        first = set(there[0][1])
        return key[0], tuple(sorted(common & first, key=lambda one: one[0]))

    def _feasible(self, block: Block, values: Values) -> tuple[int, ...]:
        """The successors that the values allow. If the waves differ, all of them."""
        successors, last = block.successors, self._code[block.end - 1]
        if len(successors) != 2 or not last.conditional:
            return successors
        name = last.line.mnemonic
        condition = _CONDITIONS.get(name[:13])
        if condition is None:
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
        """The bytes that an instruction accesses; None if they are not known."""
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
        if isinstance(values.get(*numbers_of(_address(one))), int):
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
        known: set[int] = set()
        for number, unknown in self._unknown(operator.or_).items():
            block = self._graph.blocks[number]
            for at in range(block.begin, block.end):
                one = self._code[at]
                condition = 0 if one.reads & EXEC and self._full[at] else one.reads
                if one.conditional and not condition & unknown:
                    known.add(at)
                unknown = self._unknown_after(at, unknown)
        return known - self._loops_without_lds()

    def _never_known(self) -> set[int]:
        """Indices of the instructions whose result depends on unknown data on all paths."""
        found: set[int] = set()
        for number, unknown in self._unknown(operator.and_).items():
            block = self._graph.blocks[number]
            for at in range(block.begin, block.end):
                after = self._unknown_after(at, unknown)
                operation = self._operations[at]
                if operation is not None and all(after >> one & 1 for one in operation.written):
                    found.add(at)
                unknown = after
        return found

    def _unknown(self, join: Callable[[int, int], int]) -> dict[int, int]:
        """The registers that depend on unknown data at the beginning of each block that is reached."""
        undefined = (1 << _VECTOR_REGISTERS) - (1 << _FIRST_UNDEFINED)
        entry = {0: _EVERYTHING & ~EXEC & ~self._known_first & ~undefined}
        waiting = [0]
        while waiting:
            block = self._graph.blocks[waiting.pop()]
            unknown = entry[block.number]
            for at in range(block.begin, block.end):
                unknown = self._unknown_after(at, unknown)
            for following in block.successors:
                joined = join(entry[following], unknown) if following in entry else unknown
                if joined != entry.get(following):
                    entry[following] = joined
                    waiting.append(following)
        return entry

    def _unknown_after(self, at: int, unknown: int) -> int:
        """The registers that depend on unknown data behind an instruction."""
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
        edges = [
            () if any(self._code[at].barrier for at in range(one.begin, one.end)) else one.successors
            for one in blocks
        ]
        found: set[int] = set()
        for loop in strong_components(edges):
            inside = [at for number in loop for at in range(blocks[number].begin, blocks[number].end)]
            is_loop = len(loop) > 1 or loop[0] in edges[loop[0]]
            if is_loop and not any(_accesses_lds(self._code[at]) for at in inside):
                found.update(inside)
        return found

    def _wanted_at_blocks(self, decided: set[int]) -> tuple[list[dict[int, int]], set[int]]:
        """The registers and bits of each block's beginning that an address or a known branch depends on, and
        the indices of the instructions that compute such registers."""
        blocks = self._graph.blocks
        wanted: list[dict[int, int]] = [{} for _ in blocks]
        before: list[list[int]] = [[] for _ in blocks]
        for block in blocks:
            for following in block.successors:
                before[following].append(block.number)
        executed: set[int] = set()
        waiting = list(range(len(blocks)))
        queued = set(waiting)
        while waiting:
            number = waiting.pop()
            queued.discard(number)
            block = blocks[number]
            live: dict[int, int] = {}
            for following in block.successors:
                for register, bits in wanted[following].items():
                    live[register] = live.get(register, 0) | bits
            for at in reversed(range(block.begin, block.end)):
                self._before(at, live, decided, executed)
            if live != wanted[number]:
                wanted[number] = live
                for one in before[number]:
                    if one not in queued:
                        queued.add(one)
                        waiting.append(one)
        return wanted, executed

    def _before(self, at: int, live: dict[int, int], decided: set[int], executed: set[int]) -> None:
        """Changes the wanted bits behind an instruction to those before it."""
        one, operation = self._code[at], self._operations[at]
        partly = one.vector and not self._full[at]
        results = operation.results if operation is not None else ()
        if operation is not None and any(number in live for number in operation.written):
            executed.add(at)
            bits = 0
            for number in results:
                bits |= live.get(number, 0)
            if SCC_NUMBER in operation.written and live.get(SCC_NUMBER):
                bits = ALL
            keeps = (partly and operation.kind != "mask") or operation.kind == "into lane"
            for number in operation.written:
                if not keeps:
                    live.pop(number, None)
            for number, needed in operation.needed(bits):
                live[number] = live.get(number, 0) | needed
            if partly:
                live.update(dict.fromkeys(EXEC_NUMBERS, ALL))
        elif operation is None and not partly:
            for number in numbers_of(one.writes | one.loads):
                live.pop(number, None)
        if _accesses_lds(one):
            for number in numbers_of(_address(one)):
                live[number] = ALL
            if not self._full[at]:
                live.update(dict.fromkeys(EXEC_NUMBERS, ALL))
        if at in decided:
            for number in numbers_of(one.reads):
                live[number] = ALL
        for number in numbers_of(self._undefined.get(at, 0)):
            live.pop(number, None)
        if self._full[at]:
            for number in EXEC_NUMBERS:
                live.pop(number, None)


_CONDITIONS = {
    "s_cbranch_scc": (SCC_NUMBER,),
    "s_cbranch_vcc": VCC_NUMBERS,
    "s_cbranch_exe": EXEC_NUMBERS,
}


def _mask_of(names: Iterable[str]) -> int:
    return functools.reduce(lambda mask, name: mask | register_mask(name), names, 0)


def _mask(numbers: Iterable[int]) -> int:
    return functools.reduce(lambda mask, number: mask | 1 << number, numbers, 0)


def _accesses_lds(one: Instruction) -> bool:
    return one.lds_read or one.lds_write or one.to_lds


def _address(one: Instruction) -> int:
    """The mask of the register that an access's address in LDS is in."""
    if one.to_lds:
        return M0
    operands = one.line.operands
    place = 1 if one.loads and len(operands) > 1 else 0
    return register_mask(operands[place]) if len(operands) > place else 0


def lds_begins(one: Instruction, values: Values, threads: Threads) -> tuple[list[np.ndarray], int] | None:
    """The first bytes that each thread accesses (`Value`), and the width; None if nothing is known."""
    if "addtid" in one.line.mnemonic or "gds" in one.line.modifiers:
        return None
    (number,) = numbers_of(_address(one)) or (-1,)
    base = values.get(number)
    if base is None:
        return None
    offsets, width = _offsets(one)
    lanes = np.broadcast_to(np.asarray(base, np.int64), (threads.waves * WAVE,))
    if one.to_lds:
        lanes = np.where(lanes < 0, lanes, lanes + threads.number % WAVE * width)
    return [np.where(lanes < 0, lanes, lanes + offset) for offset in offsets], width


def _offsets(one: Instruction) -> tuple[list[int], int]:
    """The constant offsets of an access to LDS, and its bytes at each."""
    line = one.line
    found = {match[1]: int(match[2]) for word in line.modifiers if (match := _OFFSET.fullmatch(word))}
    if one.to_lds:
        match = _COPIED_DWORDS.search(line.mnemonic)
        return [found.get("", 0)], 4 * int(match[1] or 1) if match else 4
    bits = _BITS.search(line.mnemonic)
    width = int(bits[1]) // 8 if bits else 4
    if "read2" in line.mnemonic or "write2" in line.mnemonic:
        scale = width * (64 if "st64" in line.mnemonic else 1)
        return [found.get(which, 0) * scale for which in "01"], width
    return [found.get("", 0)], width


def least_end(one: Instruction) -> int:
    """The end of the bytes that an access to LDS at an unknown address reaches at least."""
    offsets, width = _offsets(one)
    return max(offsets) + width


def _where_exec_is_full(graph: Graph, code: Sequence[Instruction]) -> list[bool]:
    """Whether all lanes are active, before each instruction, judged by the masks that compilers save.

    A branch that lanes take differently saves exec, or what is missing in it (s_xor_b64), and ends with
    s_or_b64 exec, exec, saved.
    """
    entry: dict[int, tuple[bool, frozenset[int]]] = {0: (True, frozenset())}
    full = [False] * len(code)
    waiting = [0]
    while waiting:
        number = waiting.pop()
        block = graph.blocks[number]
        state = entry[number]
        for at in range(block.begin, block.end):
            full[at] = state[0]
            state = _exec_after(code[at], *state)
        for following in block.successors:
            there = entry.get(following)
            joined = state if there is None else (there[0] and state[0], there[1] & state[1])
            if joined != there:
                entry[following] = joined
                waiting.append(following)
    return full


def _exec_after(one: Instruction, full: bool, saved: frozenset[int]) -> tuple[bool, frozenset[int]]:
    """(all lanes are active, masks of the register pairs that restore all lanes) behind an instruction."""
    if not one.writes:
        return full, saved
    name, masks = one.line.mnemonic, [register_mask(operand) for operand in one.line.operands]
    restores = any(mask in saved for mask in masks[1:])
    if name.endswith("saveexec_b64"):
        kept = {mask for mask in saved if not mask & masks[0]}
        return name.startswith("s_or_") and (full or restores), frozenset(
            kept | {masks[0]} if full or restores else kept
        )
    if one.writes & EXEC:
        if name == "s_mov_b64":
            return one.line.operands[1] == "-1" or restores, saved
        if name in ("s_andn2_b64", "s_xor_b64") and full:
            return False, saved | {masks[2]}
        return name == "s_or_b64" and (full or restores), saved
    if not one.writes & (SCALAR_REGISTERS | VCC):
        return full, saved
    # Lanes that left a loop are added to those that left it before.
    stays = restores and ((name == "s_xor_b64" and EXEC in masks[1:]) or name == "s_or_b64")
    begins = name == "s_mov_b64" and full and (masks[1:] == [EXEC] or one.line.operands[1] == "0")
    kept = {mask for mask in saved if not mask & one.writes}
    return full, frozenset(kept | {masks[0]} if stays or begins else kept)
