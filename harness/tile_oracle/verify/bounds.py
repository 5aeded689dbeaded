"""Checks the bounds of accesses at known addresses: constant LDS addresses, and offsets into the arguments.

It tracks constants in vector registers, and copies of the scalar register pair that points to the kernel
arguments or to the dispatch packet. At a join it keeps only what both sides agree on.
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
_OFFSET = re.compile(r"offset([01]?):(\d+)")
_LDS_BITS = re.compile(r"_(?:b|u|i|f)(8|16|32|64|96|128)")
_DISPATCH_PACKET_BYTES = 64

_Frozen = tuple[tuple[tuple[str, int], ...], tuple[tuple[int, tuple[str, int]], ...]]
NOTHING: _Frozen = ((), ())


@dataclass(frozen=True)
class Segments:
    """Sizes in bytes of LDS (None: unknown) and of each segment by name."""

    lds_bytes: int | None
    sizes: Mapping[str, int]
    entry: Mapping[int, str]
    """Mask of a scalar register pair -> the segment that it points to at the kernel's entry."""


def segments_of(settings: Mapping[str, int], dynamic_lds: bool) -> Segments:
    """The segments of a kernel, from its `.amdhsa_` settings in the allocation order of user registers."""
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
    """constants: name of a vector register -> its value in all lanes. pointers: mask of a scalar register
    pair -> segment and offset."""

    segments: Segments
    constants: dict[str, int] = field(default_factory=dict)
    pointers: dict[int, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def at_entry(cls, segments: Segments) -> Addresses:
        return cls(segments, {}, {mask: (name, 0) for mask, name in segments.entry.items()})

    def freeze(self) -> _Frozen:
        return tuple(sorted(self.constants.items())), tuple(sorted(self.pointers.items()))

    @classmethod
    def thaw(cls, segments: Segments, frozen: _Frozen) -> Addresses:
        return cls(segments, dict(frozen[0]), dict(frozen[1]))

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
        if not one.vector and not one.loads:
            return
        if self.constants and written:
            self.constants = {
                name: v for name, v in self.constants.items() if not register_mask(name) & written
            }
        if line.mnemonic.startswith("v_mov_b32") and len(line.operands) == 2:
            value = constant_of(line.operands[1])
            if value is not None:
                self.constants[line.operands[0]] = value & 0xFFFFFFFF

    def check(self, one: Instruction) -> Iterator[Defect]:
        """Yields a defect for an access out of bounds at a known address."""
        name = one.line.mnemonic
        if one.lds_read or one.lds_write:
            yield from self._check_lds(one)
        elif name.startswith("s_load_") and self.pointers:
            yield from self._check_scalar(one)

    def _check_lds(self, one: Instruction) -> Iterator[Defect]:
        size, line = self.segments.lds_bytes, one.line
        if size is None or not line.operands or "gds" in line.modifiers:
            return
        bits = _LDS_BITS.search(line.mnemonic)
        width = int(bits[1]) // 8 if bits else 4
        returns = bool(one.loads)
        place = line.operands[1 if returns and len(line.operands) > 1 else 0]
        base = self.constants.get(place, 0)
        offsets = [(match[1], int(match[2])) for m in line.modifiers if (match := _OFFSET.fullmatch(m))]
        scale = 1
        if "read2" in line.mnemonic or "write2" in line.mnemonic:
            scale = width * (64 if "st64" in line.mnemonic else 1)
        ends = [base + offset * scale + width for _, offset in offsets] or [base + width]
        if max(ends) > size:
            yield Defect("lds-bounds", f"byte {max(ends) - 1} of LDS is accessed, {size} are allocated")

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
    """The facts that both states have in common."""
    if first == second:
        return first
    constants = tuple(sorted(set(first[0]) & set(second[0])))
    return constants, tuple(sorted(set(first[1]) & set(second[1])))
