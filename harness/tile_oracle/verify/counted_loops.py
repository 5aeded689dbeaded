"""Decides whether an instruction in a loop can be executed twice, from the constants in scalar registers.

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

The loop is executed with the constants that its scalar registers have, and both ways at every branch that
these do not decide. An unknown value stays unknown, so no feasible path is lost.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from tile_oracle.verify.instructions import Instruction, constant_of
from tile_oracle.verify.registers import SCALAR_REGISTERS, SCC, register_mask

_MOST_STATES = 20_000
"""A loop with more states counts as one that may repeat everything."""
_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Part:
    """Instructions `begin` to `end` (exclusive) without a barrier. if_taken: the part that a taken branch at
    the end enters, or None; otherwise: the part behind it. A part that ends at a barrier has neither.
    """

    begin: int
    end: int
    if_taken: int | None = None
    otherwise: int | None = None

    @property
    def successors(self) -> tuple[int, ...]:
        """The parts that may follow, the target of the branch first."""
        both = (self.if_taken, self.otherwise)
        return tuple(dict.fromkeys(one for one in both if one is not None))


_Constants = dict[int, int]
"""Mask of one scalar register, or SCC -> its value, 32 bits without sign."""
_State = tuple[int, tuple[tuple[int, int], ...]]
"""A part and the constants at its beginning."""


def repeated(
    parts: Sequence[Part], loop: Collection[int], sites: Sequence[int], code: Sequence[Instruction]
) -> int | None:
    """The first of `sites` (indices of instructions) that may be executed twice without leaving `loop` (the
    numbers of its parts); None if there is none."""
    following = _states(parts, frozenset(loop), code)
    if following is None:
        return sites[0] if sites else None
    inside = {at: number for number in loop for at in range(parts[number].begin, parts[number].end)}
    for site in sites:
        places = [state for state in following if state[0] == inside[site]]
        if _reaches(following, places):
            return site
    return None


def _reaches(following: Mapping[_State, Sequence[_State]], places: Sequence[_State]) -> bool:
    """Whether a path of at least one step leads from one of the places to one of them."""
    targets = set(places)
    seen: set[_State] = set()
    waiting = list(places)
    while waiting:
        for state in following[waiting.pop()]:
            if state in targets:
                return True
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return False


def _states(
    parts: Sequence[Part], loop: frozenset[int], code: Sequence[Instruction]
) -> dict[_State, list[_State]] | None:
    """The states that the loop may reach -> the states after each; None if there are too many."""
    tracked = _compared(parts, loop, code)
    waiting = _entered(parts, loop, code, tracked)
    following: dict[_State, list[_State]] = {}
    while waiting:
        state = waiting.pop()
        if state in following:
            continue
        if len(following) == _MOST_STATES:
            return None
        left = _left(parts[state[0]], dict(state[1]), code, tracked)
        following[state] = [one for one in left if one[0] in loop]
        waiting += following[state]
    return following


def _entered(
    parts: Sequence[Part], loop: frozenset[int], code: Sequence[Instruction], tracked: int
) -> list[_State]:
    """The states in which the loop is entered. What the part before has set is known, nothing else."""
    states = [
        state
        for number, part in enumerate(parts)
        if number not in loop
        for state in _left(part, {}, code, tracked)
        if state[0] in loop
    ]
    behind_barrier = {number for number in loop if number == 0 or code[parts[number].begin - 1].barrier}
    return states + [(number, ()) for number in sorted(behind_barrier)]


def _left(part: Part, constants: _Constants, code: Sequence[Instruction], tracked: int) -> list[_State]:
    """Executes a part; returns the states that may follow."""
    for at in range(part.begin, part.end):
        _execute(code[at], constants)
    last = code[part.end - 1] if part.end > part.begin else None
    scc = constants.pop(SCC, None)
    after = tuple(sorted((mask, value) for mask, value in constants.items() if mask & tracked))
    if scc is not None and last is not None and last.line.mnemonic in _TAKEN_IF:
        decided = part.if_taken if scc == _TAKEN_IF[last.line.mnemonic] else part.otherwise
        return [] if decided is None else [(decided, after)]
    return [(number, after) for number in part.successors]


_TAKEN_IF: Mapping[str, int] = MappingProxyType({"s_cbranch_scc0": 0, "s_cbranch_scc1": 1})


def _compared(parts: Sequence[Part], loop: frozenset[int], code: Sequence[Instruction]) -> int:
    """The mask of the scalar registers that decide the loop's comparisons. The others need not be tracked."""
    inside = [code[at] for number in loop for at in range(parts[number].begin, parts[number].end)]
    tracked = 0
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
        value = _computed(_RESULTS[name], operands[1:], constants)
        target = register_mask(operands[0])
    elif name in _COMPARISONS:
        value = _computed(_COMPARISONS[name], operands, constants)
    for mask in [mask for mask in constants if mask & written]:
        del constants[mask]
    if value is not None:
        constants[target] = value & _WORD


def _computed(function: Callable[..., int], operands: Sequence[str], constants: _Constants) -> int | None:
    values = [_value(operand, constants) for operand in operands]
    return None if None in values else function(*values)


def _value(operand: str, constants: _Constants) -> int | None:
    """The value of an operand, 32 bits without sign, if it is known."""
    constant = constant_of(operand)
    return constants.get(register_mask(operand)) if constant is None else constant & _WORD


def _compare(relation: Callable[[int, int], bool], signed: bool, left: int, right: int) -> int:
    return int(relation(_signed(left), _signed(right)) if signed else relation(left, right))


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


_RESULTS: Mapping[str, Callable[..., int]] = MappingProxyType(
    {
        "s_mov_b32": lambda a: a,
        "s_add_i32": operator.add,
        "s_add_u32": operator.add,
        "s_sub_i32": operator.sub,
        "s_sub_u32": operator.sub,
        "s_mul_i32": operator.mul,
        "s_and_b32": operator.and_,
        "s_or_b32": operator.or_,
        "s_xor_b32": operator.xor,
        "s_lshl_b32": lambda a, b: a << (b & 31),
        "s_lshr_b32": lambda a, b: a >> (b & 31),
    }
)
"""Scalar instructions of 32 bits whose result is computed. The SCC that they leave counts as unknown."""

_COMPARISONS: Mapping[str, Callable[..., int]] = MappingProxyType(
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
