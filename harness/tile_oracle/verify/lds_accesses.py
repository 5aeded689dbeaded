"""Tracks accesses to LDS until others are ordered behind them, and finds those that are not.

A wave's access is ordered before another wave's behind a barrier if the wave waited for it before that.
Accesses that no barrier orders, or that may be in flight across it, must not touch the same bytes if one of
them writes. For copies from memory this holds for a wave's own accesses, too, since they are not in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tile_oracle.verify.instructions import NO_WAIT, Instruction
from tile_oracle.verify.lane_values import least_end
from tile_oracle.verify.lds_paths import Footprint
from tile_oracle.verify.rules import Defect

IN_FLIGHT, IN_FLIGHT_SINCE_BARRIER, LANDED, LANDED_SINCE_BARRIER = 1, 2, 4, 8
"""States of an access, as bits, since paths that meet may disagree: not waited for; not waited for, and a
barrier passed since; waited for, but no barrier since; waited for only behind a barrier, and none since, so
that other waves' accesses may be in flight. What was waited for is forgotten at the next barrier."""

UNKNOWN = -1
"""Number of the footprint of an access whose address is not known."""

_READ, _WRITE, _COPY, _ATOMIC = "read", "write", "copy", "atomic"
_MOST_YOUNGER = 63
_Access = tuple[int, int]
"""Index of an instruction, and number of its footprint."""
_Frozen = tuple[tuple[int, int, int, int], ...]
NOTHING: _Frozen = ()


def _kind(one: Instruction) -> str:
    if one.to_lds:
        return _COPY
    if one.lds_read and one.lds_write:
        return _ATOMIC
    return _WRITE if one.lds_write else _READ


@dataclass
class LdsAccesses:
    """held: an access that is not ordered -> its states, and its counter's clock when it was issued last.
    has_waves: whether the workgroup may have several waves. lds_bytes: None if unknown.
    disassembled: the text does not say which registers have no value on a path. Then two writes seem to meet
    where a right program does not write. merged: as of `LdsPaths`."""

    code: Sequence[Instruction]
    footprints: Sequence[Footprint]
    has_waves: bool
    lds_bytes: int | None
    disassembled: bool
    merged: bool
    met: dict[tuple[int, int, bool], bool] = field(default_factory=dict)
    """Pairs of footprints -> whether they meet, which all states share."""
    held: dict[_Access, tuple[int, int]] = field(default_factory=dict)
    vm_clock: int = 0
    lgkm_clock: int = 0

    def freeze(self) -> _Frozen:
        """Returns the state in relative numbers."""
        return tuple(
            sorted(
                (*access, states, min(self._clock(access[0]) - issued, _MOST_YOUNGER))
                for access, (states, issued) in self.held.items()
            )
        )

    def thawed(self, frozen: _Frozen) -> LdsAccesses:
        """Returns a copy with another state."""
        held = {(at, place): (states, -younger) for at, place, states, younger in frozen}
        return LdsAccesses(
            self.code, self.footprints, self.has_waves, self.lds_bytes, self.disassembled, self.merged,
            self.met, held,
        )  # fmt: skip

    def _clock(self, at: int) -> int:
        return self.vm_clock if self.code[at].to_lds else self.lgkm_clock

    def step(self, at: int, one: Instruction, footprint: int, waits: tuple[int, int]) -> None:
        """Executes the instruction at an index. waits: counts of vmcnt and lgkmcnt that are then reached."""
        if min(waits) < NO_WAIT and self.held:
            for access, (states, issued) in list(self.held.items()):
                younger = self._clock(access[0]) - issued
                most = waits[0] if self.code[access[0]].to_lds else waits[1]
                if younger >= most:
                    self.held[access] = _landed(states), issued
        if one.barrier:
            in_flight = IN_FLIGHT | IN_FLIGHT_SINCE_BARRIER
            self.held = {
                access: (IN_FLIGHT_SINCE_BARRIER, issued)
                for access, (states, issued) in self.held.items()
                if states & in_flight
            }
        self.vm_clock += one.counts_vm
        self.lgkm_clock += bool(one.counts_lgkm)
        if one.lds_read or one.lds_write or one.to_lds:
            before = self.held.get((at, footprint), (0, 0))[0]
            self.held[at, footprint] = before | IN_FLIGHT, self._clock(at)

    def check(self, at: int, one: Instruction, footprint: int) -> Iterator[Defect]:
        """Yields a defect for each access that must be ordered before this one and is not. Where an address
        is unknown, it is not proven."""
        if not (one.lds_read or one.lds_write or one.to_lds):
            return
        end = least_end(one) if footprint == UNKNOWN else self.footprints[footprint].end
        if self.lds_bytes is not None and end > self.lds_bytes:
            what = f"byte {end - 1} of LDS is accessed, {self.lds_bytes} are allocated"
            yield Defect("lds-bounds", what)
        kind = _kind(one)
        for (cause, place), (states, _) in self.held.items():
            found = self._conflict(_kind(self.code[cause]), kind, states, cause == at)
            if found is None:
                continue
            rule, what, own_wave = found
            if UNKNOWN in (place, footprint):
                yield Defect(rule, f"{what}, if the addresses meet: one is not known", cause, proven=False)
            elif self._meet(place, footprint, own_wave):
                lanes = self.footprints[place].all_lanes or self.footprints[footprint].all_lanes
                some = "" if lanes else ", if the same lanes are active: which are is not known"
                both_write = kind == _kind(self.code[cause]) == _WRITE
                some += ", if the code takes this path: there are too many to tell" if self.merged else ""
                certain = lanes and not self.merged and not (both_write and self.disassembled)
                yield Defect(rule, what + some, cause, proven=certain)

    def _meet(self, first: int, second: int, own_wave: bool) -> bool:
        """Returns whether two footprints have a byte in common."""
        key = first, second, own_wave
        if key not in self.met:
            self.met[key] = self.footprints[first].meets(self.footprints[second], own_wave)
        return self.met[key]

    def _conflict(self, before: str, after: str, states: int, same: bool) -> tuple[str, str, bool] | None:
        """(rule, what is wrong, whether it is for the same wave, too) if accesses to the same bytes conflict.

        same: by the same instruction, with which several waves may write the same data.
        """
        in_flight = bool(states & (IN_FLIGHT | IN_FLIGHT_SINCE_BARRIER))
        crossed = bool(states & (IN_FLIGHT_SINCE_BARRIER | LANDED_SINCE_BARRIER))
        if before == _COPY:
            own = in_flight
            if not own and not self.has_waves:
                return None
            if after == _COPY:
                what = "LDS is copied to again while a copy to it may be in flight"
                return None if same and not crossed else ("async-reuse", what, own and crossed)
            whose = "a" if own else "another wave's"
            if after == _READ:
                return "async-read", f"LDS is read, and {whose} copy to it may be in flight", own
            return "async-write", f"LDS is written while {whose} copy to it may be in flight", own
        if not self.has_waves or (before == after and (same or before != _WRITE)):
            return None
        if before == _READ:
            if crossed:
                what = "LDS is written, and a read from before the barrier may be outstanding"
                return "read-across", what, False
            return "race", "LDS is written without a barrier since it was read", False
        # A write that is outstanding at a barrier is found there.
        if states & (IN_FLIGHT | LANDED):
            return "race", "LDS is accessed without a barrier since it was written", False
        return None


def _landed(states: int) -> int:
    """Returns the states of an access after a wait that covers it."""
    crossed = states & (IN_FLIGHT_SINCE_BARRIER | LANDED_SINCE_BARRIER)
    return (LANDED if states & (IN_FLIGHT | LANDED) else 0) | (LANDED_SINCE_BARRIER if crossed else 0)


def join(first: _Frozen, second: _Frozen) -> _Frozen:
    """Returns the union of both states, with the smaller numbers and all states of accesses."""
    if first == second:
        return first
    merged: dict[_Access, tuple[int, int]] = {}
    for at, place, states, younger in (*first, *second):
        there = merged.get((at, place), (0, younger))
        merged[at, place] = states | there[0], min(younger, there[1])
    return tuple(sorted((*access, *state) for access, state in merged.items()))
