"""Represents gfx9 registers, and the operands of assembly, as bit masks."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

_VECTOR, _ACCUMULATOR, _SCALAR = 0, 256, 512
_VCC = _SCALAR + 106
"""vcc is s106 and s107 in gfx9's encoding."""

M0 = 1 << (_SCALAR + 128)
EXEC = 0b11 << (_SCALAR + 129)
SCC = 1 << (_SCALAR + 131)
VCC = 0b11 << _VCC

VECTOR_REGISTERS = (1 << _SCALAR) - 1
"""v0 to v255 and a0 to a255."""
SCALAR_REGISTERS = ((1 << 128) - 1) << _SCALAR

_BASES = {"v": _VECTOR, "a": _ACCUMULATOR, "s": _SCALAR, "acc": _ACCUMULATOR}
_MOST = {"v": 256, "a": 256, "s": 108, "acc": 256}
_PAIRS = {
    **{"exec": EXEC, "vcc": VCC},
    **{"flat_scratch": 0b11 << (_SCALAR + 102), "xnack_mask": 0b11 << (_SCALAR + 104)},
}
_SPECIAL = {
    **{"m0": M0, "scc": SCC, "src_scc": SCC},
    **_PAIRS,
    **{f"{name}_lo": pair & ~(pair << 1) for name, pair in _PAIRS.items()},
    **{f"{name}_hi": pair & pair << 1 for name, pair in _PAIRS.items()},
    **{f"{source}{name}z": _PAIRS[name] for name in ("exec", "vcc") for source in ("", "src_")},
}
_ONE = re.compile(r"(v|a|s|acc)(\d+)")
_RANGE = re.compile(r"(v|a|s|acc)\[(\d+):(\d+)\]")
_TRAP = re.compile(r"(?:ttmp|ttmp\[)(\d+)(?::(\d+)\])?")


@lru_cache(maxsize=65536)
def register_mask(operand: str) -> int:
    """Returns the mask of the registers in an operand; 0 for a constant, a label or `off`.

    Signs, `abs()`, `neg()`, `sext()` and bars are ignored.
    """
    text = operand.strip().lower().strip("-|")
    if text.endswith(")") and "(" in text:
        text = text[text.index("(") + 1 : -1].strip("-|")
    known = _SPECIAL.get(text)
    if known is not None:
        return known
    if match := _ONE.fullmatch(text):
        return _span(match[1], int(match[2]), int(match[2]))
    if match := _RANGE.fullmatch(text):
        return _span(match[1], int(match[2]), int(match[3]))
    if match := _TRAP.fullmatch(text):
        first = int(match[1])
        last = int(match[2] or first)
        return ((1 << (last - first + 1)) - 1) << (_SCALAR + 108 + first)
    return 0


def _span(kind: str, first: int, last: int) -> int:
    if not 0 <= first <= last < _MOST[kind]:
        return 0
    return ((1 << (last - first + 1)) - 1) << (_BASES[kind] + first)


@lru_cache(maxsize=4096)
def numbers_of(mask: int) -> tuple[int, ...]:
    """Returns the numbers of a mask's registers, lowest first."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)


def register_names(mask: int) -> str:
    """Returns the names of a mask's registers, with ranges: `v3`, `v[4:7]`, `s[0:1]`, `vcc`."""
    names: list[str] = []
    for text, bits in (("vcc", VCC), ("exec", EXEC), ("m0", M0), ("scc", SCC)):
        if mask & bits:
            names.append(text)
            mask &= ~bits
    for _, run in itertools.groupby(enumerate(numbers_of(mask)), lambda one: one[1] - one[0]):
        numbers = [number for _, number in run]
        first, last = numbers[0], numbers[-1]
        kind = "v" if first < _ACCUMULATOR else "a" if first < _SCALAR else "s"
        base = _BASES[kind]
        low, high = first - base, last - base
        names.append(f"{kind}{low}" if low == high else f"{kind}[{low}:{high}]")
    return ", ".join(names)
