"""Reads the address, the offsets and the width of an access to LDS."""

from __future__ import annotations

import re

import numpy as np

from tile_oracle.verify.instructions import Instruction
from tile_oracle.verify.lane_values import WAVE, Threads, Values, numbers_of
from tile_oracle.verify.registers import M0, register_mask

_OFFSET = re.compile(r"offset([01]?):(\d+)")
_BITS = re.compile(r"_(?:b|u|i|f)(8|16|32|64|96|128)")
_COPIED_DWORDS = re.compile(r"dword(?:x([34]))?")


def accesses_lds(one: Instruction) -> bool:
    """Returns whether an instruction reads or writes LDS, or copies to it."""
    return one.lds_read or one.lds_write or one.to_lds


def address_register(one: Instruction) -> int:
    """Returns the mask of the register that an access's address in LDS is in."""
    if one.to_lds:
        return M0
    operands = one.line.operands
    place = 1 if one.loads and len(operands) > 1 else 0
    return register_mask(operands[place]) if len(operands) > place else 0


def lds_begins(one: Instruction, values: Values, threads: Threads) -> tuple[list[np.ndarray], int] | None:
    """Returns the first bytes that each thread accesses (`Value`), and the width; None if nothing is
    known."""
    if "addtid" in one.line.mnemonic or "gds" in one.line.modifiers:
        return None
    (number,) = numbers_of(address_register(one)) or (-1,)
    base = values.get(number)
    if base is None:
        return None
    offsets, width = _offsets(one)
    lanes = np.broadcast_to(np.asarray(base, np.int64), (threads.waves * WAVE,))
    if one.to_lds:
        lanes = np.where(lanes < 0, lanes, lanes + threads.number % WAVE * width)
    return [np.where(lanes < 0, lanes, lanes + offset) for offset in offsets], width


def _offsets(one: Instruction) -> tuple[list[int], int]:
    """Returns the constant offsets of an access to LDS, and its bytes at each."""
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
    """Returns the end of the bytes that an access to LDS at an unknown address reaches at least."""
    offsets, width = _offsets(one)
    return max(offsets) + width
