"""Knows what branches say about the differences of scalar registers, such as a counter and its unknown bound.

    s_cmp_ge_i32 s45, s46
    s_cbranch_scc1 skip           ; not taken: s45 - s46 <= -1
    ...
    s_add_i32 s6, s45, -1
    s_cmp_lt_i32 s6, s46          ; true on this path

A difference-bound matrix (Dill, 1989). Signed additions whose results are compared must not overflow, as in
C++; equality and signed comparisons count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_oracle.verify.graph import Graph, states_before
from tile_oracle.verify.instructions import Instruction, constant_of
from tile_oracle.verify.registers import EXEC, SCALAR_REGISTERS, SCC, VCC, register_mask

Differences = dict[tuple[int, int], int]
"""Masks of two registers -> the most that the first is larger than the second."""

_OPPOSITES = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "lg", "lg": "eq"}
_RELATIONS = ("s_cmp_lt_i32", "s_cmp_le_i32", "s_cmp_gt_i32", "s_cmp_ge_i32", "s_cmp_eq_i32", "s_cmp_lg_i32",
              "s_cmp_eq_u32", "s_cmp_lg_u32")  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """A relation of two registers' values, by their masks."""

    relation: str
    first: int
    second: int

    def negated(self) -> Comparison:
        """Returns what holds where this does not."""
        return Comparison(_OPPOSITES[self.relation], self.first, self.second)

    def holds(self, known: Differences) -> bool | None:
        """Returns whether it holds; None if that is not known."""
        most = known.get((self.first, self.second))
        least = known.get((self.second, self.first))
        if self.relation in ("eq", "lg"):
            if (most is not None and most < 0) or (least is not None and least < 0):
                return self.relation == "lg"
            return self.relation == "eq" if most == 0 and least == 0 else None
        if self.relation in ("gt", "ge"):
            most, least = least, most
        strict = self.relation in ("lt", "gt")
        if most is not None and most <= -strict:
            return True
        return False if least is not None and least <= strict - 1 else None

    def assumed(self, known: Differences) -> None:
        """Adds to the differences that it holds."""
        first, second = self.first, self.second
        if self.relation == "lg":
            for pair in ((first, second), (second, first)):
                if known.get(pair) == 0:
                    _bound(known, *pair, -1)
            return
        if self.relation in ("lt", "le", "eq"):
            _bound(known, first, second, -(self.relation == "lt"))
        if self.relation in ("gt", "ge", "eq"):
            _bound(known, second, first, -(self.relation == "gt"))


def comparison_before(branch: int, begin: int, code: Sequence[Instruction]) -> Comparison | None:
    """Returns the comparison of two registers that a branch on SCC depends on, from an index on: what holds
    if SCC is
    1. None if it is another condition, or the registers change before the branch."""
    if not code[branch].line.mnemonic.startswith("s_cbranch_scc"):
        return None
    changed = 0
    for at in range(branch - 1, begin - 1, -1):
        one = code[at]
        changed |= one.writes | one.loads
        if one.writes & SCC:
            if one.line.mnemonic not in _RELATIONS:
                return None
            first, second = (register_mask(operand) for operand in one.line.operands)
            if not first or not second or first == second or (first | second) & (changed | ~SCALAR_REGISTERS):
                return None
            return Comparison(one.line.mnemonic.split("_")[2], first, second)
    return None


Shift = tuple[int, int, int, int]
"""Masks of a result and a source, and the least and most that the result is larger."""


def shift_of(one: Instruction) -> Shift | None:
    """Reads an addition of a constant to a scalar register, or the setting or clearing of its bits."""
    name, operands = one.line.mnemonic, one.line.operands
    if name == "s_addk_i32":
        operands = (operands[0], *operands)
    elif name == "s_mov_b32":
        operands = (*operands, "0")
    elif name not in ("s_add_i32", "s_sub_i32", "s_add_u32", "s_sub_u32", "s_or_b32", "s_and_b32"):
        return None
    result, source = map(register_mask, operands[:2])
    constant = constant_of(operands[2])
    if constant is None and "sub" not in name:
        source, constant = register_mask(operands[2]), constant_of(operands[1])
    if constant is None or not source or (source | result) & ~SCALAR_REGISTERS:
        return None
    constant = (constant & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
    if name == "s_or_b32":
        return (result, source, 0, constant) if constant >= 0 else None
    if name == "s_and_b32":
        return (result, source, constant + 1, 0) if constant < 0 else None
    by = -constant if "sub" in name else constant
    return result, source, by, by


def shift(known: Differences, result: int, source: int, least: int, most: int) -> None:
    """Executes an instruction with which result - source is between two numbers."""
    if result == source:
        for pair in [pair for pair in known if result in pair]:
            known[pair] += most if pair[0] == result else -least
        return
    forget(known, result)
    for (first, second), bound in list(known.items()):
        if first == source:
            known[result, second] = bound + most
        if second == source:
            known[first, result] = bound - least
    known[result, source], known[source, result] = most, -least


def forget(known: Differences, registers: int) -> None:
    """Drops what is known of registers."""
    for pair in [pair for pair in known if (pair[0] | pair[1]) & registers]:
        del known[pair]


def _bound(known: Differences, first: int, second: int, most: int) -> None:
    """Adds first - second <= most, and what follows from it."""
    above = [(one, by) for (one, other), by in known.items() if other == first] + [(first, 0)]
    below = [(other, by) for (one, other), by in known.items() if one == second] + [(second, 0)]
    for one, by in above:
        for other, further in below:
            bound = by + most + further
            if one != other and bound < known.get((one, other), bound + 1):
                known[one, other] = bound


NARROWS = ("s_and_saveexec_b64", "s_and_b64", "s_andn2_b64")
"""Instructions after which no lane is active that was not before."""
_State = tuple[bool, frozenset[int]]
"""Whether all lanes are active, and masks of the register pairs that restore all lanes."""


def restored_mask(one: Instruction) -> int:
    """Returns the registers of the mask that an instruction adds to exec; 0 if it does something else."""
    if one.line.mnemonic != "s_or_b64" or one.line.operands[:2] != ("exec", "exec"):
        return 0
    return register_mask(one.line.operands[2])


def where_exec_is_full(graph: Graph, code: Sequence[Instruction]) -> list[bool]:
    """Returns whether all lanes are active, before each instruction, judged by the masks that compilers save.

    A branch that lanes take differently saves exec, or what is missing in it (s_xor_b64), and ends with
    s_or_b64 exec, exec, saved.
    """
    full = [False] * len(code)
    first = (True, frozenset[int]())
    for at, state in states_before(graph, first, lambda at, state: _exec_after(code[at], *state), _joined):
        full[at] = state[0]
    return full


def _joined(first: _State, second: _State) -> _State:
    return first[0] and second[0], first[1] & second[1]


def _exec_after(one: Instruction, full: bool, saved: frozenset[int]) -> _State:
    """Returns the state behind an instruction."""
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
