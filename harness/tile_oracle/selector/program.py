"""Compiles expressions to a program of vector operations, which native code runs once per problem.

A program has one memory of doubles, which begins with the problem's fields. Every instruction writes one
value, or one per class of kernels, to its own place. Values that do not depend on the problem are in a
second, read-only memory. Operands are places, or CONSTANT + places in the second memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import ModelError
from tile_oracle.features.feature_table import Array
from tile_oracle.selector.trace import NUMPY_OF, Classes, Node, Partition

# ---- Writes the binary format of selector files: little-endian numbers, and arrays and texts with their
# length.


class ByteWriter:
    """The counterpart of `tile_oracle/byte_reader.hpp`. Arrays and texts begin with their length as u32;
    everything is aligned to 4 bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def u32(self, *values: int) -> None:
        self._parts.append(struct.pack(f"<{len(values)}I", *values))

    def u32s(self, values: Sequence[int] | Any) -> None:
        self._numbers(values, "<u4")

    def _numbers(self, values: Any, kind: str) -> None:
        array = np.ascontiguousarray(values, dtype=kind)
        self.u32(array.size)
        self._parts.append(array.tobytes())

    def f32s(self, values: Sequence[float] | Any) -> None:
        self._numbers(values, "<f4")

    def f64s(self, values: Sequence[float] | Any) -> None:
        self._numbers(values, "<f8")

    def data(self, data: bytes) -> None:
        self.u32(len(data))
        self._parts.append(data + bytes(-len(data) % 4))

    def text(self, text: str) -> None:
        self.data(text.encode())

    def texts(self, texts: Iterable[str]) -> None:
        listed = list(texts)
        self.u32(len(listed))
        for text in listed:
            self.text(text)

    def written(self) -> bytes:
        return b"".join(self._parts)


CONSTANT = 1 << 31
LANES = 4
"""Values of several classes are padded to a multiple of this, so that SIMD loops have no remainder."""

OPERATIONS: tuple[str, ...] = (*NUMPY_OF, "spread")
"""Operations by their number in a program. `spread` expands values of classes to the finer classes of a later
operation, by a table of class numbers."""


@dataclass(frozen=True)
class Instruction:
    """Writes `count` results to `to`. An operand has one value if its bit in `single` is set, else `count`.
    The second operand of `spread` is the position of its table in the program's indices."""

    operation: str
    count: int
    to: int
    operands: tuple[int, ...]
    single: int


@dataclass(frozen=True)
class Place:
    """The location of a node's value. operand: as instructions encode it. partition: the classes of kernels
    with a value each; None for a single value."""

    operand: int
    partition: Partition | None

    @property
    def count(self) -> int:
        return 1 if self.partition is None else self.partition.count


class ProgramMaker:
    """Turns nodes of one graph into a program: call `place` for each wanted node, then `write`."""

    def __init__(self, problem_fields: Sequence[str]) -> None:
        self._fields = tuple(problem_fields)
        self._size = len(self._fields)
        self._constants: list[Array] = []
        self._constants_size = 0
        self._indices: list[Classes] = []
        self._indices_size = 0
        self._instructions: list[Instruction] = []
        self._places: dict[tuple[int, int], Place] = {}

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(self._instructions)

    def place(self, node: Node) -> Place:
        """Returns the place of a constant or an interaction; adds the instructions that compute it.

        Raises ModelError for a node that depends on the kernels alone, which needs no program.
        """
        if node.kind == "kernel":
            raise ModelError("a value that depends on the kernels alone is not part of a program")
        found = self._places.get((node.number, 0))
        if found is None:
            self._make_operands(node)
            found = self._places[node.number, 0] = self._made(node)
        return found

    def _make_operands(self, node: Node) -> None:
        """Makes the places of all operands of a node, deepest first. Not recursive: expressions can be
        deep."""
        waiting = [node]
        while waiting:
            top = waiting[-1]
            missing = [
                operand
                for operand in top.operands
                if operand.kind != "kernel" and (operand.number, 0) not in self._places
            ]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if top is not node and (top.number, 0) not in self._places:
                self._places[top.number, 0] = self._made(top)

    def _made(self, node: Node) -> Place:
        if node.values is not None:
            return Place(self.constant(node.values), None)
        if node.field:
            return Place(self._fields.index(node.field), None)
        operands = [self._operand(operand, node.partition) for operand in node.operands]
        single = sum(1 << i for i in range(3) if i >= len(operands) or operands[i].partition is None)
        return self._add(node.operation, node.partition, [operand.operand for operand in operands], single)

    def _operand(self, node: Node, partition: Partition | None) -> Place:
        """Returns a node's values, expanded to the classes of the operation that uses it."""
        if node.kind == "kernel" and node.values is not None and partition is not None:
            key = (node.number, id(partition))
            if key not in self._places:
                self._places[key] = Place(self.constant(node.values[partition.first]), partition)
            return self._places[key]
        found = self._places[node.number, 0]
        if found.partition is None or partition is None or found.partition is partition:
            return found
        key = (node.number, id(partition))
        if key not in self._places:
            table = self._indices_size
            classes = _padded(found.partition.of[partition.first])
            self._indices.append(classes)
            self._indices_size += len(classes)
            self._places[key] = self._add("spread", partition, [found.operand, table], 0)
        return self._places[key]

    def _add(self, operation: str, partition: Partition | None, operands: list[int], single: int) -> Place:
        count = 1 if partition is None else partition.count
        place = Place(self._size, partition)
        self._size += count if partition is None else count + -count % LANES
        self._instructions.append(Instruction(operation, count, place.operand, tuple(operands), single))
        return place

    def constant(self, values: Array) -> int:
        """Returns the operand of constant values."""
        padded = values if len(values) == 1 else _padded(values)
        self._constants.append(padded)
        self._constants_size += len(padded)
        return CONSTANT + self._constants_size - len(padded)

    def write(self, to: ByteWriter) -> None:
        """Writes the program in the format of `tile_oracle::Program`."""
        to.u32(len(self._fields), self._size)
        to.f64s(np.concatenate([np.zeros(0), *self._constants]))
        to.u32s(np.concatenate([np.zeros(0, dtype=np.int64), *self._indices]))
        to.u32(len(self._instructions))
        for one in self._instructions:
            operands = (*one.operands, 0, 0, 0)[:3]
            to.u32(OPERATIONS.index(one.operation), one.count, one.to, one.single, *operands)


_Values = TypeVar("_Values", bound=npt.NDArray[Any])


def _padded(values: _Values) -> _Values:
    padded: _Values = np.concatenate([values, np.repeat(values[-1:], -len(values) % LANES)])  # type: ignore[assignment]
    return padded
