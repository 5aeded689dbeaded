"""Classifies LDS reads by use, and finds accesses of different waves without a barrier in between.

If the kernel has one LDS buffer for its tiles, no wave may write to LDS in an interval between barriers in
which another wave reads tiles. With two buffers, both happen at once in different halves, and only
`loops_without_barrier` applies. Data that an epilogue exchanges through LDS needs barriers on both sides in
every kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tile_oracle.verify.instructions import Instruction
from tile_oracle.verify.registers import VECTOR_REGISTERS, register_mask
from tile_oracle.verify.rules import Defect

TILE, EXCHANGED, OTHER = "tile", "exchanged", "other"
"""Uses of an LDS read: multiplied by a matrix instruction; stored to memory; anything else."""

_LOOKED_AT = 600
_NO_SITE = 1 << 30

_Frozen = tuple[int, int, int]
NOTHING: _Frozen = (_NO_SITE, _NO_SITE, _NO_SITE)


def classify_reads(code: Sequence[Instruction]) -> dict[int, str]:
    """Index of each LDS read -> the use of its data, judged by the first instructions after it in the
    text."""
    return {at: _use_of(code, at) for at, one in enumerate(code) if one.lds_read and one.loads}


def _use_of(code: Sequence[Instruction], begin: int) -> str:
    followed = code[begin].loads
    for at in range(begin + 1, min(begin + _LOOKED_AT, len(code))):
        one = code[at]
        read = one.reads & followed
        if read:
            if one.matrix is not None:
                if one.matrix.ab & followed:
                    return TILE
                return OTHER
            if one.memory:
                stored = one.counts_vm and not one.loads and not one.to_lds and not _is_scratch(one)
                return EXCHANGED if stored and _data_of(one) & followed else OTHER
            if not one.vector:
                return OTHER
            followed |= one.writes & VECTOR_REGISTERS
        followed &= ~(0 if read else one.writes | one.loads)
        if not followed:
            return OTHER
    return OTHER


def _is_scratch(one: Instruction) -> bool:
    return one.line.mnemonic.startswith("scratch_")


def _data_of(store: Instruction) -> int:
    """The data operand of a store: the first operand of buffer stores, the second of global and flat ones."""
    operands = store.line.operands
    place = 0 if store.line.mnemonic.startswith("buffer_") else 1
    return register_mask(operands[place]) if len(operands) > place else 0


@dataclass
class LdsUse:
    """Index of the first LDS write, tile read and read of exchanged data since the last barrier.

    buffers: number of LDS buffers for tiles, or None when unknown.
    """

    reads: dict[int, str]
    buffers: int | None
    written: int = _NO_SITE
    tile_read: int = _NO_SITE
    exchanged_read: int = _NO_SITE

    def freeze(self) -> _Frozen:
        return self.written, self.tile_read, self.exchanged_read

    def thawed(self, frozen: _Frozen) -> LdsUse:
        """A copy with another state."""
        return LdsUse(self.reads, self.buffers, *frozen)

    def step(self, at: int, one: Instruction) -> None:
        """Executes the instruction at an index."""
        if one.barrier:
            self.written = self.tile_read = self.exchanged_read = _NO_SITE
        if one.lds_write or one.to_lds:
            self.written = min(self.written, at)
        if one.lds_read:
            kind = self.reads.get(at, OTHER)
            if kind == TILE:
                self.tile_read = min(self.tile_read, at)
            elif kind == EXCHANGED:
                self.exchanged_read = min(self.exchanged_read, at)

    def reads_only_buffer(self, at: int, one: Instruction) -> bool:
        """Whether an instruction reads a tile of a kernel with one buffer."""
        return one.lds_read and self.buffers == 1 and self.reads.get(at, OTHER) == TILE

    def check(self, at: int, one: Instruction) -> Iterator[Defect]:
        """Yields defects for accesses that race with another wave's."""
        if one.lds_read and self.written != _NO_SITE:
            kind = self.reads.get(at, OTHER)
            if kind == EXCHANGED or (kind == TILE and self.buffers == 1):
                yield Defect("race", "LDS is read without a barrier since it was written", self.written)
        if one.lds_write or one.to_lds:
            if self.exchanged_read != _NO_SITE:
                yield Defect(
                    "race", "LDS is written without a barrier since it was read", self.exchanged_read
                )
            if self.tile_read != _NO_SITE and self.buffers == 1:
                yield Defect("race", "LDS is written without a barrier since it was read", self.tile_read)


def join(first: _Frozen, second: _Frozen) -> _Frozen:
    """The join of both states: the lower index of each kind."""
    return min(first[0], second[0]), min(first[1], second[1]), min(first[2], second[2])
