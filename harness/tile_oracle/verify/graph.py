"""The control-flow graph of a function."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tile_oracle.verify.assembly import Function
from tile_oracle.verify.instructions import Instruction

State = TypeVar("State")


@dataclass(frozen=True)
class Block:
    """A basic block: instructions `begin` to `end` (exclusive). name: its label, `entry` or `line N`.
    successors: the target of its branch first."""

    number: int
    begin: int
    end: int
    name: str
    successors: tuple[int, ...]

    def taken(self, code: Sequence[Instruction]) -> int | None:
        """Returns the successor that is entered by a taken branch and in no other way; None if there is
        none."""
        last = code[self.end - 1]
        is_certain = last.branch and len(self.successors) == (2 if last.conditional else 1)
        return self.successors[0] if is_certain else None


@dataclass(frozen=True)
class Graph:
    """The basic blocks in order. lost: indices of branches whose target is not in the function."""

    blocks: tuple[Block, ...]
    lost: tuple[int, ...]


def control_flow(function: Function, code: Sequence[Instruction]) -> Graph:
    """Builds the control-flow graph; the first block is the entry."""
    starts = {0}
    starts.update(index for index in function.labels.values() if index < len(code))
    for index, one in enumerate(code):
        if (one.branch or one.ends or one.leaves) and index + 1 < len(code):
            starts.add(index + 1)
    order = sorted(starts)
    number_of = {begin: number for number, begin in enumerate(order)}
    names = {index: name for name, index in reversed(function.labels.items())}
    blocks: list[Block] = []
    lost: list[int] = []
    for number, begin in enumerate(order):
        end = order[number + 1] if number + 1 < len(order) else len(code)
        last = code[end - 1]
        successors: list[int] = []
        if last.branch:
            target = function.labels.get(last.branch)
            if target is None:
                lost.append(end - 1)
            elif target < len(code):
                successors.append(number_of[target])
        falls = not last.ends and not (last.branch and not last.conditional) and not _jumps_away(last)
        if falls and end < len(code):
            successors.append(number_of[end])
        name = names.get(begin) or ("entry" if begin == 0 else f"line {code[begin].line.number}")
        blocks.append(Block(number, begin, end, name, tuple(dict.fromkeys(successors))))
    return Graph(tuple(blocks), tuple(lost))


def _jumps_away(one: Instruction) -> bool:
    """Returns whether control does not return: s_setpc does not, a call does."""
    return one.leaves and one.line.mnemonic.startswith("s_setpc")


def reverse_postorder(graph: Graph) -> list[int]:
    """Returns the numbers of the reachable blocks in reverse postorder: each before its successors, except in
    loops."""
    seen = {0}
    order: list[int] = []
    stack = [(0, iter(graph.blocks[0].successors))]
    while stack:
        number, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            order.append(number)
            stack.pop()
        elif following not in seen:
            seen.add(following)
            stack.append((following, iter(graph.blocks[following].successors)))
    return order[::-1]


def shortest_path(graph: Graph, begin: int, end: int) -> tuple[int, ...]:
    """Returns the blocks on a shortest path of at least one edge; the block itself when it is not in a
    cycle."""
    paths: deque[tuple[int, ...]] = deque([(begin,)])
    seen: set[int] = set()
    while paths:
        path = paths.popleft()
        for following in graph.blocks[path[-1]].successors:
            if following == end:
                return (*path, end)
            if following not in seen:
                seen.add(following)
                paths.append((*path, following))
    return (begin,) if begin == end else ()


def strong_components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns the strongly connected components of a graph. edges: successors of each node."""
    begins = [node for node, following in enumerate(edges) for _ in following]
    ends = list(itertools.chain(*edges))
    matrix = coo_array(([1] * len(ends), (begins, ends)), shape=(len(edges), len(edges)))
    count, labels = connected_components(matrix, connection="strong")
    return [[node for node, label in enumerate(labels) if label == number] for number in range(count)]


def states_before(
    graph: Graph, first: State, after: Callable[[int, State], State], join: Callable[[State, State], State]
) -> Iterator[tuple[int, State]]:
    """Yields (index, state before it) of each instruction that is reached: a fixpoint over the blocks.

    first: the state at the entry. after: the state behind the instruction at an index.
    """
    entry, waiting = {0: first}, [0]
    while waiting:
        block = graph.blocks[waiting.pop()]
        *_, (last, before) = _through(block, entry[block.number], after)
        state = after(last, before)
        for following in block.successors:
            joined = join(entry[following], state) if following in entry else state
            if joined != entry.get(following):
                entry[following] = joined
                waiting.append(following)
    for number, state in entry.items():
        yield from _through(graph.blocks[number], state, after)


def states_at_begins(
    graph: Graph, first: State, before: Callable[[Block, State], State], join: Callable[[State, State], State]
) -> list[State]:
    """Returns the state at the beginning of each block: a fixpoint against the direction of the branches.

    first: the state behind the last blocks. before: the state at a block's beginning, given the one behind
    it.
    """
    begins = [first] * len(graph.blocks)
    waiting = list(range(len(begins)))
    while waiting:
        block = graph.blocks[waiting.pop()]
        state = before(block, functools.reduce(join, (begins[one] for one in block.successors), first))
        if state != begins[block.number]:
            begins[block.number] = state
            previous = (one.number for one in graph.blocks if block.number in one.successors)
            waiting += [one for one in previous if one not in waiting]
    return begins


def _through(block: Block, state: State, after: Callable[[int, State], State]) -> Iterator[tuple[int, State]]:
    for at in range(block.begin, block.end):
        yield at, state
        state = after(at, state)
