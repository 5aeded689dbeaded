"""What changes before each timed run on the CPU, and what is looked at: drawn anew for every series of runs.

An operand changes as a whole, by masks that are XORed into it. A kernel can neither keep anything of an
earlier run nor tell which run's output will be compared, or where.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tile_oracle.device.factors import Axes
from tile_oracle.device.guarded_memory import GuardedBuffer
from tile_oracle.device.native_clock import Change, Masks, Turns
from tile_oracle.device.stray_values import POISON_BYTE

WATCHED = 16
"""Values of the output that a timed run must have written when it returns, other ones for every run."""
STATES = 4096
"""Different signs of a vector of factors, drawn at random."""
_PART = 16
_WHOLE = -1
_AT_ONCE = 256
"""Runs for which everything is drawn together."""


@dataclass(frozen=True)
class MaskList:
    """The masks of one operand in each state. See `Masks` of tile_oracle.device.native_clock.

    follows: the number of the vector whose state counts. unit: bytes from one state's masks to the next's.
    """

    content: npt.NDArray[np.uint8]
    follows: int
    unit: int
    steps: tuple[int, int, int] = (0, 0, 0)
    within: int = _WHOLE


_NO_MASKS = MaskList(np.zeros(_PART, np.uint8), 0, 0, within=_PART - 1)


@dataclass(frozen=True)
class Turning:
    """An operand at a writable address, its outer extents, the bytes of its last axis, and its two lists of
    masks."""

    to: int
    extents: tuple[int, int, int]
    width: int
    masks: tuple[MaskList, MaskList]


def signs(generator: np.random.Generator, size: int) -> npt.NDArray[np.bool_]:
    """Returns those of a vector of factors in all states: in state s they begin at s."""
    return generator.random(size + STATES) < 0.5


def sign_turning(
    operand: GuardedBuffer, item_bytes: int, axes: Axes, vectors: Sequence[tuple[int, npt.NDArray[np.bool_]]]
) -> Turning:
    """Returns the operand whose elements' signs are those of two vectors, which have numbers."""
    merged = axes.merged
    bits = np.dtype(f"u{item_bytes}")
    lists = []
    for (number, negative), steps in zip(vectors, (merged.one, merged.other), strict=True):
        assert steps[3] in (0, 1)
        each = 1 if steps[3] else _PART // item_bytes
        content = np.repeat(negative.astype(bits) << bits.type(8 * item_bytes - 1), each).view(np.uint8)
        unit = each * item_bytes
        outer = (steps[0] * unit, steps[1] * unit, steps[2] * unit)
        lists.append(MaskList(content, number, unit, outer, _WHOLE if steps[3] else _PART - 1))
    width = merged.extents[3] * item_bytes
    return Turning(operand.writable_address, merged.extents[:3], width, (lists[0], lists[1]))


class OperandTurns:
    """The states of all operands. They begin in state 0, in which nothing has changed.

    kept: a copy of the output that is to be compared, and kept_states the operands' states in its run.
    """

    def __init__(
        self,
        turnings: Sequence[Turning],
        vectors: int,
        states: int,
        out: GuardedBuffer,
        item_bytes: int,
        seed: int,
    ) -> None:
        """`states`: of each vector. item_bytes: of a value of the output."""
        self._random = np.random.default_rng((seed, 5))
        self._draw_one = random.Random(seed).random
        self._vectors, self._count = vectors, states
        self._out, self._item_bytes = out, item_bytes
        self._values = out.size // item_bytes
        # The last byte has the sign, and all bits set in it mean NaN, or a number that no result is.
        self._last_byte = out.address + item_bytes - 1
        self.kept = np.zeros(out.size, np.uint8)
        self.kept_states = np.zeros(vectors, np.int64)
        self._states = np.zeros((vectors, 1), np.int64)
        self._drawn = self._used = self._begin = self._seen = 0
        self._lists = [one for turning in turnings for one in turning.masks]
        self._follows = np.array([one.follows for one in self._lists])
        self._units = np.array([one.unit for one in self._lists], np.int64)[:, None]
        self._changes = (Change * len(turnings))()
        for change, turning in zip(self._changes, turnings, strict=True):
            change.to, change.extents, change.width = turning.to, turning.extents, turning.width
            for number, one in enumerate(turning.masks):
                change.masks[number] = Masks(one.content.ctypes.data, 0, one.steps, one.within)
        self._masks = [masks for change in self._changes for masks in change.masks]
        self._turns = Turns(0, 0, 0, 0, 0, ctypes.addressof(self._changes), len(turnings), 0, WATCHED)
        self._turns.out, self._turns.out_bytes = out.address, out.size
        self._turns.kept = self.kept.ctypes.data

    def forget(self) -> None:
        """Says that what ran before is of no interest: one of the runs to come is kept."""
        self._seen = 0

    def draw(self, count: int, *, keep: bool) -> Turns:
        """Returns what changes before `count` runs. Poisons the output.

        keep: one of these runs is kept; otherwise one of all since `forget`, each as likely as the others.
        """
        if self._used + count > self._drawn:
            self._draw_block(max(count, _AT_ONCE))
        begin = self._begin = self._used
        return self._turns_at(begin, count, self._at_address, self._drawn + 1, keep=keep)

    def stay(self) -> Turns:
        """Returns one more run with the same operands, which is kept."""
        if not self._drawn:
            self._draw_block(_AT_ONCE)
        states = self._states[:, [self._used, self._used]]
        self._still = np.ascontiguousarray(states[self._follows] * self._units)
        turns = self._turns_at(0, 1, self._still.ctypes.data, 2, keep=True)
        self.kept_states = self._states[:, self._used]
        return turns

    def _turns_at(self, begin: int, count: int, at: int, length: int, *, keep: bool) -> Turns:
        """at: the address of lists of `length` places."""
        for number, masks in enumerate(self._masks):
            masks.at = at + 8 * (number * length + begin)
        turns = self._turns
        turns.watched = self._watched_address + 8 * WATCHED * begin
        turns.begun, turns.kept_run = 0, -1
        self._seen += count
        if keep or self._draw_one() * self._seen < count:
            turns.kept_run = kept = int(self._draw_one() * count)
            self.kept_states = self._states[:, begin + kept + 1]
        self._out.fill(POISON_BYTE)
        return turns

    def ran(self) -> None:
        """Says that the runs drawn last have been made, or as many as were begun."""
        self._used = self._begin + self._turns.begun

    def _draw_block(self, count: int) -> None:
        """Draws the states of the next runs, and what is watched in them."""
        states = np.empty((self._vectors, count + 1), np.int64)
        states[:, 0] = self._states[:, self._used]
        # A state never follows itself.
        states[:, 1:] = self._random.integers(1, self._count, (self._vectors, count))
        states = np.cumsum(states, axis=1) % self._count
        self._states, self._drawn, self._used = states, count, 0
        self._at = states[self._follows] * self._units
        places = self._random.integers(0, self._values, WATCHED * count)
        self._watched = places * self._item_bytes + self._last_byte
        self._at_address, self._watched_address = self._at.ctypes.data, self._watched.ctypes.data


def whole_turns(
    operands: Sequence[GuardedBuffer],
    rounds: Sequence[Sequence[npt.NDArray[np.generic]]],
    out: GuardedBuffer,
    item_bytes: int,
    seed: int,
) -> OperandTurns:
    """Operands that get other values for each run: those of a round, which are in the buffers in round 0."""
    turnings = []
    for number, buffer in enumerate(operands):
        content = np.concatenate([values[number].ravel().view(np.uint8) for values in rounds])
        masks = MaskList(content, 0, buffer.size)
        turnings.append(Turning(buffer.writable_address, (1, 1, 1), buffer.size, (masks, _NO_MASKS)))
    return OperandTurns(turnings, 1, len(rounds), out, item_bytes, seed)
