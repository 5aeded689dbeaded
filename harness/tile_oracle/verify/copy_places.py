"""Which copies from memory to LDS go to another place in every round of their loop.

The LDS address of a copy is in m0. A ring of buffers that the compiler chose itself has an address that is
computed in the loop. Then the copies of two or more rounds may be in flight, each to a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_oracle.verify.graph import Graph, strong_components
from tile_oracle.verify.instructions import Instruction, constant_of
from tile_oracle.verify.registers import M0


def moving_copies(code: Sequence[Instruction], graph: Graph) -> frozenset[int]:
    """Indices of the copies to LDS that share a loop with a write of m0 that is not a constant."""
    found: set[int] = set()
    for component in strong_components([block.successors for block in graph.blocks]):
        if len(component) == 1 and component[0] not in graph.blocks[component[0]].successors:
            continue
        places = [
            at for number in component for at in range(graph.blocks[number].begin, graph.blocks[number].end)
        ]
        if any(code[at].writes & M0 and not _is_constant(code[at]) for at in places):
            found.update(at for at in places if code[at].to_lds)
    return frozenset(found)


def _is_constant(one: Instruction) -> bool:
    return one.line.mnemonic == "s_mov_b32" and constant_of(one.line.operands[1]) is not None
