"""Classifies LDS reads by use, and finds accesses of different waves without a barrier in between.

If the kernel has one LDS buffer for its tiles, no wave may write to LDS in an interval between barriers in
which another wave reads tiles. With two buffers, both happen at once in different halves, and only
`loops_without_barrier` applies. Data that an epilogue exchanges through LDS needs barriers on both sides in
every kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tile_oracle.verify.graph import Block, Graph
from tile_oracle.verify.instructions import Instruction
from tile_oracle.verify.registers import VECTOR_REGISTERS, register_mask
from tile_oracle.verify.rules import Defect

TILE, EXCHANGED, OTHER = "tile", "exchanged", "other"
"""Uses of an LDS read: multiplied by a matrix instruction; stored to memory; anything else."""

_LOOKED_AT = 1000
"""Instructions behind a read that are looked at, on all paths together."""
_NO_SITE = 1 << 30

_Frozen = tuple[int, int, int]
NOTHING: _Frozen = (_NO_SITE, _NO_SITE, _NO_SITE)


def classify_reads(code: Sequence[Instruction], graph: Graph) -> dict[int, str]:
    """Index of each LDS read -> the use of its data, judged by the instructions behind it on all paths."""
    return {
        at: _use_of(code, graph, block, at)
        for block in graph.blocks
        for at in range(block.begin, block.end)
        if code[at].lds_read and code[at].loads
    }


def _use_of(code: Sequence[Instruction], graph: Graph, block: Block, read: int) -> str:
    """TILE if the data are multiplied on any path, else EXCHANGED if they are stored on any, else OTHER."""
    found = OTHER
    looked_at = 0
    seen: set[int] = set()
    waiting = deque([(block, read + 1, code[read].loads)])
    while waiting and looked_at < _LOOKED_AT:
        block, at, followed = waiting.popleft()
        while at < block.end and followed and looked_at < _LOOKED_AT:
            looked_at += 1
            one = code[at]
            at += 1
            if one.reads & followed:
                use = _use_by(one, followed)
                if use == TILE:
                    return TILE
                if use:
                    found = EXCHANGED if EXCHANGED in (use, found) else OTHER
                    followed = 0
                    break
                followed |= one.writes & VECTOR_REGISTERS
            else:
                followed &= ~(one.writes | one.loads)
        if followed and at == block.end:
            behind = [number for number in block.successors if number not in seen]
            seen.update(behind)
            waiting += [(graph.blocks[number], graph.blocks[number].begin, followed) for number in behind]
    return found


def _use_by(one: Instruction, followed: int) -> str:
    """The use of data by an instruction that reads them; "" if it computes other data from them."""
    if one.matrix is not None:
        return TILE if one.matrix.ab & followed else OTHER
    if one.memory:
        stored = one.counts_vm and not one.loads and not one.to_lds and not _is_scratch(one)
        return EXCHANGED if stored and _data_of(one) & followed else OTHER
    return "" if one.vector else OTHER


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
