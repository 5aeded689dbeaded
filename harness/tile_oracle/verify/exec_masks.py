"""Knows where all lanes are active, judged by the masks that compilers save and restore."""

from __future__ import annotations

from collections.abc import Sequence

from tile_oracle.verify.graph import Graph, states_before
from tile_oracle.verify.instructions import Instruction
from tile_oracle.verify.registers import EXEC, SCALAR_REGISTERS, VCC, register_mask

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
