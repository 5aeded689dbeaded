"""Unrolls loops without a barrier by the constants in scalar registers.

A compiler that does not unroll a loop of constant length leaves instructions in it that belong to one
iteration only, behind a comparison of the loop's counter:

    s_mov_b32 s4, 0
    loop:
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 skip     ; the write belongs to iteration 0
    ds_write_b32 v0, v1
    skip:
    s_add_i32 s4, s4, 1
    s_cmp_lg_u32 s4, 2
    s_cbranch_scc1 loop

A graph of blocks has paths on which every iteration writes. `unrolled` copies the loop's blocks for each set
of constants that they are executed with, and keeps both ways at a branch that these do not decide. An unknown
value stays unknown, so no feasible path is lost.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from tile_oracle.verify.graph import Block, Graph, strong_components
from tile_oracle.verify.instructions import Instruction, constant_of
from tile_oracle.verify.registers import EXEC, SCALAR_REGISTERS, SCC, VCC, register_mask

_MOST_STATES = 5_000
"""A loop with more copies of blocks stays as it is."""
_IS_SET = VCC | 1 << 1000
"""Key of a constant: 1 when vcc is not zero and its value is not known."""

_Constants = dict[int, int]
"""Mask of a scalar register or pair, SCC or `_IS_SET` -> its value without sign."""
_State = tuple[int, tuple[tuple[int, int], ...]]
"""A block and the constants at its beginning."""


def unrolled(graph: Graph, code: Sequence[Instruction]) -> Graph:
    """The graph with copies of the blocks of loops that access LDS without a barrier, one for each set of
    constants; the graph itself if it has no such loop."""
    graph = split_at_barriers(graph, code)
    loops = {
        number: loop
        for loop in _loops(graph, code)
        for number in loop
        if 0 not in loop and _touches_lds(graph, loop, code)
    }
    tracked = {loop: _compared(graph, loop, code) for loop in set(loops.values())}
    copies: dict[_State, list[_State]] = {}
    waiting: list[_State] = [(0, ())]
    while waiting:
        state = waiting.pop()
        if state in copies:
            continue
        if len(copies) > _MOST_STATES + len(graph.blocks):
            return graph
        copies[state] = list(_left(graph, state, code, loops, tracked))
        waiting += copies[state]
    order = sorted(copies)
    place = {state: at for at, state in enumerate(order)}
    blocks = tuple(
        replace(
            graph.blocks[state[0]],
            number=place[state],
            successors=tuple(dict.fromkeys(place[one] for one in copies[state])),
        )
        for state in order
    )
    return Graph(blocks, graph.lost)


def split_at_barriers(graph: Graph, code: Sequence[Instruction]) -> Graph:
    """The same graph with blocks that end at every barrier."""
    pieces: list[tuple[Block, int, int]] = []
    first: dict[int, int] = {}
    for block in graph.blocks:
        first[block.number] = len(pieces)
        begin = block.begin
        for at in range(block.begin, block.end - 1):
            if code[at].barrier:
                pieces.append((block, begin, at + 1))
                begin = at + 1
        pieces.append((block, begin, block.end))
    blocks = []
    for number, (block, begin, end) in enumerate(pieces):
        following = tuple(first[one] for one in block.successors) if end == block.end else (number + 1,)
        name = block.name if begin == block.begin else f"line {code[begin].line.number}"
        blocks.append(Block(number, begin, end, name, following))
    return Graph(tuple(blocks), graph.lost)


def _loops(graph: Graph, code: Sequence[Instruction]) -> Iterator[frozenset[int]]:
    """The loops without a barrier, by the numbers of their blocks."""
    edges = [() if code[block.end - 1].barrier else block.successors for block in graph.blocks]
    for component in strong_components(edges):
        if len(component) > 1 or component[0] in edges[component[0]]:
            yield frozenset(component)


def _touches_lds(graph: Graph, loop: frozenset[int], code: Sequence[Instruction]) -> bool:
    return any(one.lds_write or one.to_lds for one in _instructions(graph, loop, code))


def _instructions(graph: Graph, loop: frozenset[int], code: Sequence[Instruction]) -> Iterator[Instruction]:
    for number in sorted(loop):
        yield from code[graph.blocks[number].begin : graph.blocks[number].end]


def _left(
    graph: Graph,
    state: _State,
    code: Sequence[Instruction],
    loops: Mapping[int, frozenset[int]],
    tracked: Mapping[frozenset[int], int],
) -> Iterator[_State]:
    """Executes a block; yields the states that may follow, the target of its branch first."""
    block = graph.blocks[state[0]]
    constants = dict(state[1])
    for at in range(block.begin, block.end):
        _execute(code[at], constants)
    for number in _feasible(block, code[block.end - 1], constants):
        loop = loops.get(number)
        known = constants.items() if loop is not None else ()
        kept = 0 if loop is None else tracked[loop]
        yield number, tuple(sorted((mask, value) for mask, value in known if mask & kept and mask != SCC))


def _feasible(block: Block, last: Instruction, constants: Mapping[int, int]) -> tuple[int, ...]:
    """The successors of a block that the constants at its end allow."""
    if len(block.successors) != 2 or not last.conditional:
        return block.successors
    kind, jumps_if = _CONDITIONS.get(last.line.mnemonic, ("", 0))
    value = constants.get(SCC) if kind == "scc" else None
    if kind == "vcc":
        value = constants.get(_IS_SET, constants.get(VCC))
    if value is None:
        return block.successors
    return block.successors[:1] if bool(value) == bool(jumps_if) else block.successors[1:]


_CONDITIONS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "s_cbranch_scc0": ("scc", 0),
        "s_cbranch_scc1": ("scc", 1),
        "s_cbranch_vccz": ("vcc", 0),
        "s_cbranch_vccnz": ("vcc", 1),
    }
)


def _compared(graph: Graph, loop: frozenset[int], code: Sequence[Instruction]) -> int:
    """The mask of the scalar registers that decide the loop's branches. The others need not be tracked."""
    inside = list(_instructions(graph, loop, code))
    tracked = VCC
    for one in inside:
        if one.line.mnemonic.startswith("s_cmp"):
            tracked |= one.reads & SCALAR_REGISTERS
    while True:
        more = tracked
        for one in inside:
            if one.line.mnemonic in _RESULTS and one.writes & tracked:
                more |= one.reads & SCALAR_REGISTERS
        if more == tracked:
            return tracked
        tracked = more


def _execute(one: Instruction, constants: _Constants) -> None:
    """Changes the constants as the instruction does; forgets what it may write in an unknown way."""
    name, operands = one.line.mnemonic, one.line.operands
    if one.leaves or not one.known or name.startswith("s_movrel"):
        constants.clear()
        return
    written = one.writes | one.loads
    if not written:
        return
    value: int | None = None
    target = SCC
    if name in _RESULTS and len(operands) > 1:
        target = register_mask(operands[0])
        bits = 64 if name.endswith("64") else 32
        values = [_value(operand, constants, bits) for operand in operands[1:]]
        if name.startswith("s_cselect"):
            values.append(constants.get(SCC))
        value = _RESULTS[name](*values)
        value = None if value is None else value & (1 << bits) - 1
        if value is None and target == VCC:
            value = _with_exec(name, operands[1:], constants)
            target = VCC if value == 0 else _IS_SET
    elif name in _COMPARISONS:
        value = _COMPARISONS[name](*(_value(operand, constants, 32) for operand in operands))
    for mask in [mask for mask in constants if mask & written]:
        del constants[mask]
    if value is not None:
        constants[target] = value


def _value(operand: str, constants: _Constants, bits: int) -> int | None:
    """The value of an operand without sign, if it is known."""
    constant = constant_of(operand)
    return constants.get(register_mask(operand)) if constant is None else constant & (1 << bits) - 1


def _with_exec(name: str, operands: Sequence[str], constants: _Constants) -> int | None:
    """exec and a condition that is the same for all lanes: 1 (not zero), 0, or None (unknown).

    A compiler branches in this way only where a lane is active. If none is, no access to LDS is made.
    """
    if name not in ("s_and_b64", "s_andn2_b64"):
        return None
    left, right = operands
    if name == "s_and_b64" and register_mask(right) == EXEC:
        left, right = right, left
    condition = _value(right, constants, 64)
    if register_mask(left) != EXEC or condition not in (0, _ALL):
        return None
    return int((condition == _ALL) == (name == "s_and_b64"))


_ALL = (1 << 64) - 1


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _known(function: Callable[..., int], *values: int | None) -> int | None:
    return None if None in values else function(*values)


def _compare(
    relation: Callable[[int, int], bool], signed: bool, left: int | None, right: int | None
) -> int | None:
    if left is None or right is None:
        return None
    return int(relation(_signed(left), _signed(right)) if signed else relation(left, right))


def _and(left: int | None, right: int | None) -> int | None:
    return 0 if 0 in (left, right) else _known(operator.and_, left, right)


def _or(left: int | None, right: int | None) -> int | None:
    return _ALL if _ALL in (left, right) else _known(operator.or_, left, right)


def _and_not(left: int | None, right: int | None) -> int | None:
    return _and(left, None if right is None else _ALL ^ right)


def _select(left: int | None, right: int | None, scc: int | None) -> int | None:
    if scc is None:
        return left if left == right else None
    return left if scc else right


_RESULTS: Mapping[str, Callable[..., int | None]] = MappingProxyType(
    {
        name: partial(_known, function)
        for name, function in (
            ("s_mov_b32", operator.pos),
            ("s_mov_b64", operator.pos),
            ("s_add_i32", operator.add),
            ("s_add_u32", operator.add),
            ("s_sub_i32", operator.sub),
            ("s_sub_u32", operator.sub),
            ("s_mul_i32", operator.mul),
            ("s_and_b32", operator.and_),
            ("s_or_b32", operator.or_),
            ("s_xor_b32", operator.xor),
            ("s_lshl_b32", lambda a, b: a << (b & 31)),
            ("s_lshr_b32", lambda a, b: a >> (b & 31)),
        )
    }
    | {
        "s_and_b64": _and,
        "s_or_b64": _or,
        "s_andn2_b64": _and_not,
        "s_cselect_b32": _select,
        "s_cselect_b64": _select,
    }
)
"""Scalar instructions whose result is computed. The SCC that they leave counts as unknown."""

_COMPARISONS: Mapping[str, Callable[..., int | None]] = MappingProxyType(
    {
        f"s_cmp_{name}_{kind}": partial(_compare, relation, kind == "i32")
        for kind in ("i32", "u32")
        for name, relation in (
            ("eq", operator.eq),
            ("lg", operator.ne),
            ("gt", operator.gt),
            ("ge", operator.ge),
            ("lt", operator.lt),
            ("le", operator.le),
        )
    }
)
