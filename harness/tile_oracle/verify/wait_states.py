"""Checks manually inserted wait states: the required distances between dependent instructions.

Each instruction counts as one wait state, s_nop N as N + 1, a taken branch as two. The last is an
assumption: no ISA document states it, but a taken branch costs some 20 cycles on GCN (timings of the
assembler CLRX), and LLVM relies on it, since behind a conditional branch it also counts the s_branch that
is not executed. The other numbers are from the ISA documents' tables of manually inserted wait states, and
from LLVM's hazard recogniser (GCNHazardRecognizer.cpp) for what differs between architectures; passes on
gfx90a are those of its SISchedule.td.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tile_oracle.verify.instructions import Instruction, Matrix
from tile_oracle.verify.registers import EXEC, M0, SCALAR_REGISTERS, VCC, VECTOR_REGISTERS, register_names

_LONGEST_MATRIX = 20
_LONGEST_OTHER = 5
_EMPTY = (0, 0, 0, 0, 0, 0)
_VALU, _TRANS, _HALF, _DOT, _SALU_M0, _STORE = range(6)

_Frozen = tuple[tuple[tuple[int, int, int], ...], tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Chip:
    """The differences between architectures.

    extra: wait states that XDL instructions of more than two passes need in addition. double_ab, double_c:
    after fp64 16x16x4, before its result is a factor or overlaps in part with sums. separate_fp32: whether
    fp32 instructions are not XDL; otherwise all matrix instructions but fp64 are alike. forwards: whether
    results of vector instructions (transcendental, in halves, scalar, for lane accesses) need wait states.
    """

    extra: int
    double_ab: int
    double_c: int
    separate_fp32: bool
    forwards: bool

    def passes(self, matrix: Matrix) -> int:
        """Returns the duration of a matrix instruction, in passes of four cycles."""
        if self.separate_fp32 or matrix.double:
            return matrix.passes
        return _PASSES_OF_GFX90A[matrix.side]

    def xdl(self, matrix: Matrix) -> bool:
        return matrix.xdl or not (self.separate_fp32 or matrix.double)


_PASSES_OF_GFX90A = {4: 2, 16: 8, 32: 16}

CHIPS = {
    "gfx950": Chip(extra=1, double_ab=19, double_c=17, separate_fp32=True, forwards=True),
    "gfx942": Chip(extra=0, double_ab=11, double_c=9, separate_fp32=True, forwards=True),
    "gfx90a": Chip(extra=0, double_ab=11, double_c=9, separate_fp32=False, forwards=False),
}
"""Architecture -> what it needs. gfx950 needs the most."""

STRICTEST = CHIPS["gfx950"]


@dataclass(frozen=True)
class Owed:
    """Missing wait states. cause: index of the first instruction, if known."""

    what: str
    registers: int
    needed: int
    there: int
    cause: int | None = None


@dataclass
class WaitStates:
    """matrix: index of a matrix instruction -> its clock of issue, and its result registers that no later one
    has written. recent: for each of the last wait states, youngest first, the registers that its instruction
    wrote, by kind."""

    code: Sequence[Instruction]
    matrix: dict[int, tuple[int, int]] = field(default_factory=dict)
    recent: list[tuple[int, ...]] = field(default_factory=lambda: [_EMPTY] * _LONGEST_OTHER)
    clock: int = 0
    _forget_at: int = _LONGEST_MATRIX
    chip: Chip = STRICTEST

    def freeze(self) -> _Frozen:
        """Returns the state in relative numbers."""
        ages = ((at, self.clock - issued, result) for at, (issued, result) in self.matrix.items())
        return tuple(sorted(one for one in ages if one[1] <= _LONGEST_MATRIX)), tuple(self.recent)

    @classmethod
    def thaw(cls, code: Sequence[Instruction], frozen: _Frozen, chip: Chip = STRICTEST) -> WaitStates:
        """Restores a frozen state, with the clock at 0."""
        matrix = {at: (-age, result) for at, age, result in frozen[0]}
        return cls(code, matrix, list(frozen[1]), chip=chip)

    def step(self, at: int, one: Instruction) -> None:
        """Executes the instruction at an index."""
        self.clock += one.wait_states
        if len(self.matrix) > _LONGEST_MATRIX or (self.matrix and self.clock > self._forget_at):
            oldest = self.clock - _LONGEST_MATRIX
            self.matrix = {place: held for place, held in self.matrix.items() if held[0] >= oldest}
        if one.matrix is not None:
            for place, (issued, result) in self.matrix.items():
                if result & one.writes:
                    self.matrix[place] = issued, result & ~one.writes
            self.matrix[at] = self.clock, one.writes
            self._forget_at = self.clock + _LONGEST_MATRIX
        if one.wait_states > 1:
            gap = [_EMPTY] * min(one.wait_states, _LONGEST_OTHER)
            self.recent = (gap + self.recent)[:_LONGEST_OTHER]
        else:
            by_vector = one.writes * (one.vector and one.matrix is None)
            kinds = (one.writes * had for had in (one.transcendental, one.half_result, one.dot))
            wrote = (by_vector, *kinds, one.writes & M0 * one.scalar, one.wide_store_data)
            self.recent = [wrote, *self.recent[:-1]]

    def branch(self) -> None:
        """Passes the wait state that a taken branch provides besides its own (see the module)."""
        self.clock += 1
        self.recent = [_EMPTY, *self.recent[:-1]]

    def owed(self, one: Instruction) -> Iterator[Owed]:
        """Yields the wait states that are missing if this instruction comes next."""
        if self.matrix and (one.vector or one.memory):
            yield from self._after_matrix(one)
        if one.vector:
            yield from self._vector(one)
        elif one.memory and (found := self._since(_VALU, 5, one.reads & SCALAR_REGISTERS)):
            yield Owed("a vector instruction wrote the scalar register that memory is accessed by", *found)
        if one.reads_m0_late and (found := self._since(_SALU_M0, 1, M0)):
            yield Owed("a scalar instruction wrote m0 just before", *found)

    def _since(self, kind: int, needed: int, registers: int) -> tuple[int, int, int] | None:
        """(registers, needed, present) if one of the last `needed` wait states wrote the registers."""
        if registers:
            for there in range(needed):
                if overlap := self.recent[there][kind] & registers:
                    return overlap, needed, there
        return None

    def _vector(self, one: Instruction) -> Iterator[Owed]:
        vectors, forwards = one.reads & VECTOR_REGISTERS, self.chip.forwards
        is_matrix, reads_lane = one.matrix is not None, one.line.mnemonic.startswith("v_read")
        scalars, lanes = one.reads & SCALAR_REGISTERS, one.lane_access
        written = one.writes & VECTOR_REGISTERS
        for applies, kind, needed, registers, what in (
            (forwards, _VALU, 2, scalars, "a vector instruction wrote the scalar register"),
            (forwards, _HALF, 1, one.reads | one.writes, "half of the register was written"),
            (
                forwards and not one.transcendental,
                *(_TRANS, 1, vectors, "a transcendental instruction wrote the register"),
            ),
            (is_matrix, _VALU, 2, vectors, "a vector instruction wrote a matrix instruction's operand"),
            (is_matrix, _VALU, 4, EXEC, "a vector instruction wrote exec before a matrix instruction"),
            (one.dpp, _VALU, 2, vectors, "a vector instruction wrote what another lane reads (DPP)"),
            (one.dpp, _VALU, 5, EXEC, "a vector instruction wrote exec before DPP"),
            (one.permutes, _VALU, 2, vectors, "a vector instruction wrote what v_permlane exchanges"),
            (
                lanes and forwards and reads_lane,
                *(_VALU, 1, vectors, "a vector instruction wrote the register that a lane is read from"),
            ),
            (lanes and forwards, _VALU, 4, EXEC, "a vector instruction wrote exec before a lane is accessed"),
            (lanes, _VALU, 4, one.lane_select, "a vector instruction wrote the lane's number"),
            (one.divides_fmas, _VALU, 4, VCC, "a vector instruction wrote vcc before v_div_fmas"),
            (not one.dot, _DOT, 3, vectors | written, "a dot product wrote the register"),
            (True, _STORE, 1, written, "a wide store still reads the register"),
        ):
            if applies and (found := self._since(kind, needed, registers)):
                yield Owed(what, *found)

    def _after_matrix(self, one: Instruction) -> Iterator[Owed]:
        writes = one.writes | one.loads
        touched = one.reads | writes
        for at, (issued, result) in self.matrix.items():
            there = self.clock - issued
            if there >= _LONGEST_MATRIX:
                continue
            before = self.code[at]
            if not (touched & result or writes & before.reads):
                continue
            assert before.matrix is not None
            needed, registers, what = _after(self.chip, before, result, before.matrix, one, writes)
            if there < needed:
                yield Owed(what, registers, needed, there, at)


def _after(
    chip: Chip, before: Instruction, result: int, matrix: Matrix, one: Instruction, writes: int
) -> tuple[int, int, str]:
    """(wait states, registers, why) required between a matrix instruction and another instruction.

    result: the result registers that no later instruction has written.
    """
    passes, xdl = chip.passes(matrix), chip.xdl(matrix)
    extra = chip.extra * (passes != 2)
    found: list[tuple[int, int, str]] = []
    if one.matrix is not None:
        if overlap := result & one.matrix.ab:
            needed = passes + 3 + extra if xdl else passes + 2
            if matrix.double:
                needed = chip.double_ab if passes == 16 else 6
            found.append((needed, overlap, "a matrix instruction's result is the next one's operand"))
        if overlap := result & one.matrix.c:
            found.append((_accumulated(chip, before, matrix, one.matrix), overlap, "sums overlap in part"))
        return max(found, default=(0, 0, ""))
    needed = passes + 3 + extra if xdl else passes + 2
    if overlap := result & one.reads:
        if matrix.double:
            small = passes == 4
            needed = (9 if small else 18) if one.memory else (6 if small else 11)
        found.append((needed, overlap, "a matrix instruction's result is read"))
    if overlap := result & writes:
        if matrix.double:
            needed = 6 if passes == 4 else 11
        found.append((needed, overlap, "a matrix instruction's result is overwritten"))
    if xdl and (overlap := matrix.c & writes):
        found.append((passes - 1, overlap, "the sums that a matrix instruction reads are overwritten"))
    return max(found, default=(0, 0, ""))


def _accumulated(chip: Chip, before: Instruction, matrix: Matrix, following: Matrix) -> int:
    """Wait states when the result is the next instruction's accumulator input. None are needed for the same
    registers, except after short instructions."""
    passes = chip.passes(matrix)
    if before.writes == following.c:
        if matrix.double and following.double and passes == 4:
            return 4
        return 2 if passes == 2 and chip.separate_fp32 else 0
    if matrix.double:
        return 0 if chip.xdl(following) else (chip.double_c if passes == 16 else 4)
    if not chip.separate_fp32:
        return passes + following.double
    if not matrix.xdl:
        return 0 if following.xdl else passes
    if following.xdl:
        return passes + 1 + chip.extra
    return passes + 1 + chip.extra * (passes != 2)


def join(first: _Frozen, second: _Frozen) -> _Frozen:
    """Returns the join of both states: the smaller age of each matrix instruction, and the union of
    writes."""
    if first == second:
        return first
    held = {at: (age, result) for at, age, result in first[0]}
    for at, age, result in second[0]:
        there = held.get(at, (age, 0))
        held[at] = min(age, there[0]), result | there[1]
    recent = tuple(
        tuple(x | y for x, y in zip(a, b, strict=True)) for a, b in zip(first[1], second[1], strict=True)
    )
    return tuple(sorted((at, age, result) for at, (age, result) in held.items())), recent


NOTHING: _Frozen = ((), (_EMPTY,) * _LONGEST_OTHER)
"""The state at a kernel's entry."""


def missing(one: Owed) -> str:
    """Describes the missing wait states."""
    return (
        f"{one.what}: {register_names(one.registers)} needs {one.needed} wait states, there are {one.there}"
    )
