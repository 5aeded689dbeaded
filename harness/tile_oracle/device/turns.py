"""What changes before each timed run on the CPU, and what is looked at: drawn anew for every series of runs.

An operand changes as a whole, by masks that are XORed into it. A kernel can neither keep anything of an
earlier run nor tell which run's output will be compared, or where.
"""

from __future__ import annotations

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
_DRAWN = 1 << 62


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


def signs(random: np.random.Generator, size: int) -> npt.NDArray[np.bool_]:
    """Those of a vector of factors in all states: in state s they begin at s."""
    return random.random(size + STATES) < 0.5


def sign_turning(
    operand: GuardedBuffer, item_bytes: int, axes: Axes, vectors: Sequence[tuple[int, npt.NDArray[np.bool_]]]
) -> Turning:
    """The operand whose elements' signs are those of two vectors, which have numbers."""
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

    state_counts: of each vector. kept: a copy of the output that is to be compared, and kept_states the
    operands' states in its run.
    """

    def __init__(
        self,
        turnings: Sequence[Turning],
        state_counts: Sequence[int],
        out: GuardedBuffer,
        item_bytes: int,
        seed: int,
    ) -> None:
        self._random = np.random.default_rng((seed, 5))
        self._counts = np.array(state_counts, np.int64)[:, None]
        self._out, self._item_bytes = out, item_bytes
        self._values = out.size // item_bytes
        # The last byte has the sign, and all bits set in it mean NaN, or a number that no result is.
        self._last_byte = out.address + item_bytes - 1
        self.kept = np.zeros(out.size, np.uint8)
        self._kept_at = self.kept.ctypes.data
        self.kept_states = np.zeros(len(state_counts), np.int64)
        self._states = np.zeros((len(state_counts), 1), np.int64)
        self._seen = 0
        self._lists = [one for turning in turnings for one in turning.masks]
        self._follows = np.array([one.follows for one in self._lists])
        self._units = np.array([one.unit for one in self._lists], np.int64)[:, None]
        self._at = np.zeros((0, 0), np.int64)
        self._changes = (Change * len(turnings))()
        for change, turning in zip(self._changes, turnings, strict=True):
            change.to, change.extents, change.width = turning.to, turning.extents, turning.width
            for number, one in enumerate(turning.masks):
                change.masks[number] = Masks(one.content.ctypes.data, 0, one.steps, one.within)
        self._masks = [masks for change in self._changes for masks in change.masks]

    def forget(self) -> None:
        """Says that what ran before is of no interest: one of the runs to come is kept."""
        self._seen = 0

    def draw(self, count: int, *, keep: bool, still: bool = False) -> Turns:
        """Draws the states of `count` runs and poisons the output.

        keep: one of these runs is kept; otherwise one of all since `forget`, each as likely as the others.
        still: the operands do not change.
        """
        vectors, before = len(self._counts), self._states[:, -1:]
        drawn = self._random.integers(0, _DRAWN, (vectors + WATCHED) * count + 2)
        states = np.empty((vectors, count + 1), np.int64)
        states[:] = before
        if not still:
            # A state never follows itself.
            steps = drawn[: vectors * count].reshape(vectors, count) % (self._counts - 1) + 1
            states[:, 1:] = (before + steps.cumsum(axis=1)) % self._counts
        self._states = states
        self._at = states[self._follows] * self._units
        at = self._at.ctypes.data
        for number, masks in enumerate(self._masks):
            masks.at = at + number * (count + 1) * 8
        self._seen += count
        kept_run = -1
        if keep or still or drawn[-1] % self._seen < count:
            kept_run = int(drawn[-2]) % count
            self.kept_states = states[:, kept_run + 1]
        places = drawn[vectors * count : -2].reshape(count, WATCHED) % self._values
        watched = places * self._item_bytes + self._last_byte
        self._out.fill(POISON_BYTE)
        return Turns(self._changes, watched, kept_run, self._out.address, self._kept_at, self._out.size)

    def ran(self, begun: int) -> None:
        """Says how many of the runs drawn were begun."""
        self._states = self._states[:, : begun + 1]


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
    return OperandTurns(turnings, [len(rounds)], out, item_bytes, seed)
