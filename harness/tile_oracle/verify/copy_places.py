"""Which copies from memory to LDS go to another place in every round of their loop.

The LDS address of a copy is in m0. A ring of buffers that the compiler chose itself has an address that is
computed in the loop. Then the copies of two or more rounds may be in flight, each to a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_oracle.verify.graph import Graph
from tile_oracle.verify.instructions import Instruction, constant_of
from tile_oracle.verify.registers import M0


def moving_copies(code: Sequence[Instruction], graph: Graph) -> frozenset[int]:
    """Indices of the copies to LDS that share a loop with a write of m0 that is not a constant."""
    copies = {at for at, one in enumerate(code) if one.to_lds}
    if not copies:
        return frozenset()
    moved = [at for at, one in enumerate(code) if one.writes & M0 and not _is_constant(one)]
    block_of = {at: block.number for block in graph.blocks for at in range(block.begin, block.end)}
    behind = {number: _behind(graph, number) for number in {block_of[at] for at in (*copies, *moved)}}
    return frozenset(
        at
        for at in copies
        if any(
            block_of[at] in behind[block_of[write]] and block_of[write] in behind[block_of[at]]
            for write in moved
        )
    )


def _is_constant(one: Instruction) -> bool:
    return one.line.mnemonic == "s_mov_b32" and constant_of(one.line.operands[1]) is not None


def _behind(graph: Graph, number: int) -> frozenset[int]:
    """The blocks that can be reached from a block by at least one step."""
    found: set[int] = set()
    waiting = list(graph.blocks[number].successors)
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += graph.blocks[one].successors
    return frozenset(found)
