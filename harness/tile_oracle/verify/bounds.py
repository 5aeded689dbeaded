"""Checks that reads of the kernel's arguments and dispatch packet are in bounds.

It tracks copies of the scalar register pairs that point to them. At a join it keeps what both sides agree on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tile_oracle.verify.instructions import Instruction, constant_of
from tile_oracle.verify.registers import SCALAR_REGISTERS, register_mask
from tile_oracle.verify.rules import Defect

_DWORDS = re.compile(r"_dword(?:x(\d+))?$")
_SCALAR_WIDTH = re.compile(r"_(u8|i8|u16|i16)$")
_DISPATCH_PACKET_BYTES = 64

_Frozen = tuple[tuple[int, tuple[str, int]], ...]


@dataclass(frozen=True)
class Segments:
    """Sizes in bytes of LDS (None: unknown) and of each segment by name."""

    lds_bytes: int | None
    sizes: Mapping[str, int]
    entry: Mapping[int, str]
    """Mask of a scalar register pair -> the segment that it points to at the kernel's entry."""


def segments_of(settings: Mapping[str, int], dynamic_lds: bool) -> Segments:
    """Returns the segments of a kernel, from its `.amdhsa_` settings in the allocation order of user
    registers."""
    if not settings:
        return Segments(None, {}, {})
    at = 0
    entry: dict[int, str] = {}
    order = (
        ("user_sgpr_private_segment_buffer", 4, ""),
        ("user_sgpr_dispatch_ptr", 2, "dispatch packet"),
        ("user_sgpr_queue_ptr", 2, ""),
        ("user_sgpr_kernarg_segment_ptr", 2, "arguments"),
    )
    for name, width, segment in order:
        if settings.get(name):
            if segment:
                entry[register_mask(f"s[{at}:{at + width - 1}]")] = segment
            at += width
    sizes = {"dispatch packet": _DISPATCH_PACKET_BYTES}
    if "kernarg_size" in settings:
        sizes["arguments"] = settings["kernarg_size"]
    return Segments(None if dynamic_lds else settings.get("group_segment_fixed_size"), sizes, entry)


@dataclass
class Addresses:
    """pointers: mask of a scalar register pair -> segment and offset."""

    segments: Segments
    pointers: dict[int, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def at_entry(cls, segments: Segments) -> Addresses:
        return cls(segments, {mask: (name, 0) for mask, name in segments.entry.items()})

    def freeze(self) -> _Frozen:
        return tuple(sorted(self.pointers.items()))

    @classmethod
    def thaw(cls, segments: Segments, frozen: _Frozen) -> Addresses:
        return cls(segments, dict(frozen))

    def step(self, one: Instruction) -> None:
        """Executes an instruction."""
        written = one.writes | one.loads
        copied: tuple[int, tuple[str, int]] | None = None
        line = one.line
        if line.mnemonic == "s_mov_b64" and len(line.operands) == 2:
            source = self.pointers.get(register_mask(line.operands[1]))
            copied = (register_mask(line.operands[0]), source) if source else None
        if written and self.pointers and written & SCALAR_REGISTERS:
            self.pointers = {mask: to for mask, to in self.pointers.items() if not mask & written}
        if copied:
            self.pointers[copied[0]] = copied[1]

    def check(self, one: Instruction) -> Iterator[Defect]:
        """Yields a defect for a read out of bounds at a known address."""
        if one.line.mnemonic.startswith("s_load_") and self.pointers:
            yield from self._check_scalar(one)

    def _check_scalar(self, one: Instruction) -> Iterator[Defect]:
        line = one.line
        if len(line.operands) < 3:
            return
        to = self.pointers.get(register_mask(line.operands[1]))
        offset = constant_of(line.operands[2])
        if to is None or offset is None or to[0] not in self.segments.sizes:
            return
        size = self.segments.sizes[to[0]]
        match = _DWORDS.search(line.mnemonic)
        small = _SCALAR_WIDTH.search(line.mnemonic)
        width = 4 * int(match[1] or 1) if match else int(small[1][1:]) // 8 if small else 4
        begin = to[1] + offset
        if begin < 0 or begin + width > size:
            yield Defect(
                "kernarg-bounds",
                f"bytes {begin} to {begin + width - 1} of the {to[0]} are read, it has {size}",
            )


def join(first: _Frozen, second: _Frozen) -> _Frozen:
    """Returns the facts that both states have in common."""
    return first if first == second else tuple(sorted(set(first) & set(second)))
