"""Counts the matrix instructions of a kernel's main loop in its machine code or PTX.

No disassembler is needed: fixed bits of the encoding give an instruction's length and tell branches and
matrix instructions from the rest. For gfx950 the source is AMD's "Instruction Set Architecture" documents for
CDNA 3 and 4, chapter "Microcode Formats". The encoding of sm_90 is not published; tests check the two opcodes
used here against the PTX from which a binary was assembled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import numpy as np

_SOPP, _SOP1, _SOPC = 0x17F, 0x17D, 0x17E
_SOPK_WITH_LITERAL = 20  # s_setreg_imm32_b32
_AMD_BRANCHES = frozenset((2, 4, 5, 6, 7, 8, 9))  # s_branch, s_cbranch_scc0 ... execnz
_LITERAL = 255
_SDWA_OR_DPP = (249, 250)
_VOP2_WITH_CONSTANT = frozenset((0x17, 0x18, 0x24, 0x25))  # fmamk, fmaak
_VOP3P = 0x1A7
_LONG_FORMATS = 0b11
_NOT_MATRIX = frozenset((0x58, 0x59))  # v_accvgpr_read, v_accvgpr_write
_NEW_MATRIX = frozenset((0x2D, 0x2E, *range(0x35, 0x3E)))  # new in gfx950, in gaps of the older opcodes

_SASS_BYTES = 16
_SASS_HMMA, _SASS_BRA = 0x23C, 0x947

_PTX_LABEL = re.compile(r"^\$?([A-Za-z_][\w$]*):")
_PTX_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+\$?([A-Za-z_][\w$]*)")

Code = Sequence[tuple[int, int | None, bool]]
"""Instructions in order, all branches and matrix instructions among them: address, branch target (None for
other instructions), whether it is a matrix instruction."""


def main_loop_matrix_instructions(code: Code) -> int:
    """Returns the highest count of matrix instructions in any innermost loop; 0 when no loop has one.

    A loop is the code between a backward branch and its target.
    """
    addresses = [at for at, _, matrix in code if matrix]
    loops = sorted({(to, at) for at, to, _ in code if to is not None and to <= at}, key=lambda p: p[1] - p[0])
    innermost: list[tuple[int, int, int]] = []
    for begin, end in loops:
        count = sum(begin <= at <= end for at in addresses)
        if count and not any(begin <= low and high <= end for low, high, _ in innermost):
            innermost.append((begin, end, count))
    return max((count for *_, count in innermost), default=0)


def amd_code(text: bytes) -> Code:
    """Decodes gfx9 machine code. Raises ValueError when it ends within an instruction."""
    words = struct.unpack(f"<{len(text) // 4}I", text[: len(text) // 4 * 4])
    code: list[tuple[int, int | None, bool]] = []
    at = 0
    while at < len(words):
        word = words[at]
        target = None
        if word >> 23 == _SOPP and word >> 16 & 0x7F in _AMD_BRANCHES:
            offset = word & 0xFFFF
            target = 4 * (at + 1 + (offset - 0x10000 if offset & 0x8000 else offset))
        code.append((4 * at, target, _is_amd_matrix(word)))
        at += _amd_words(word)
    if at != len(words):
        raise ValueError("the machine code ends within an instruction")
    return code


def _is_amd_matrix(word: int) -> bool:
    op = word >> 16 & 0x7F
    return word >> 23 == _VOP3P and (op in _NEW_MATRIX or (op >= 0x40 and op not in _NOT_MATRIX))


def _amd_words(word: int) -> int:
    """Length of an instruction in words, from its first word."""
    if word >> 30 == _LONG_FORMATS:
        return 2
    if word >> 31:  # scalar
        top = word >> 23
        if top == _SOPP:
            return 1
        if word >> 28 == 0xB and top not in (_SOP1, _SOPC):
            return 2 if top & 0x1F == _SOPK_WITH_LITERAL else 1
        first, second = word & 0xFF, word >> 8 & 0xFF
        return 2 if first == _LITERAL or (top != _SOP1 and second == _LITERAL) else 1
    source = word & 0x1FF
    op = word >> 25
    return 2 if source == _LITERAL or source in _SDWA_OR_DPP or op in _VOP2_WITH_CONSTANT else 1


def nvidia_code(text: bytes) -> Code:
    """Decodes the branches and matrix instructions of sm_70 to sm_90 machine code, 16 bytes per instruction.
    Raises ValueError for a partial one."""
    if len(text) % _SASS_BYTES:
        raise ValueError("the machine code ends within an instruction")
    words = np.frombuffer(text, dtype="<u8").reshape(-1, 2)
    op = words[:, 0] & 0xFFF
    code: list[tuple[int, int | None, bool]] = []
    for place in np.flatnonzero((op == _SASS_BRA) | (op == _SASS_HMMA)).tolist():
        at, (low, high), target = place * _SASS_BYTES, words[place].tolist(), None
        if op[place] == _SASS_BRA:
            # Offset in words from the next instruction: high part in bits 34 to 81, low byte in bits 16 to
            # 23.
            offset = low >> 34 | (high & 0x3FFFF) << 30
            offset -= (offset & 1 << 47) << 1
            target = at + _SASS_BYTES + 4 * (offset << 8 | low >> 16 & 0xFF)
        code.append((at, target, target is None))
    return code


def ptx_code(text: str, entry: str) -> Code:
    """Decodes the lines of one entry of a PTX module. Raises ValueError when there is no such entry."""
    body = re.search(rf"\.entry\s+{re.escape(entry)}\b.*?^\}}", text, re.DOTALL | re.MULTILINE)
    if body is None:
        raise ValueError(f"the PTX has no entry {entry}")
    lines = body[0].splitlines()
    labels = {match[1]: at for at, line in enumerate(lines) if (match := _PTX_LABEL.match(line.strip()))}
    code: list[tuple[int, int | None, bool]] = []
    for at, line in enumerate(lines):
        branch = _PTX_BRANCH.search(line)
        code.append((at, labels.get(branch[1]) if branch else None, "mma.sync" in line))
    return code
