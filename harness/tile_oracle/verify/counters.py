"""Tracks the outstanding instructions of vmcnt and lgkmcnt, and copies to LDS, along all paths.

For each load that may be outstanding, the abstract state has the smallest number of younger instructions of
the same counter over all paths. `s_waitcnt vmcnt(n)` covers the load exactly when that number is at least n.
A join is the union with the smaller number, which is exact for each single load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tile_oracle.verify.instructions import LDS, Instruction

_MOST_YOUNGER = 63
"""The largest count of vmcnt; larger numbers need no distinction."""

IN_FLIGHT, IN_FLIGHT_SINCE_BARRIER, LANDED, LANDED_SINCE_BARRIER = 1, 2, 4, 8
"""States of a copy to LDS, as bits, since paths that meet may disagree: not waited for; not waited for, and a
barrier passed since; waited for, but no barrier since; waited for only behind a barrier, and none since, so
that other waves' copies may be in flight. A copy that was waited for is forgotten at the next barrier."""

_Numbers = tuple[tuple[int, int], ...]
_Frozen = tuple[_Numbers, ...]


@dataclass
class Counters:
    """vm, lgkm: index of an outstanding instruction -> the counter's clock when it was issued. copies: index
    of a copy to LDS -> its states. read_across: LDS reads outstanding at the last barrier. calls_wait:
    whether functions that are called wait for all that is outstanding."""

    code: Sequence[Instruction]
    vm: dict[int, int] = field(default_factory=dict)
    lgkm: dict[int, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    read_across: dict[int, int] = field(default_factory=dict)
    vm_clock: int = 0
    lgkm_clock: int = 0
    vm_loads: int = 0
    lgkm_loads: int = 0
    calls_wait: bool = False

    def freeze(self) -> _Frozen:
        """The state in relative numbers, which can be compared and joined."""
        vm = {at: min(self.vm_clock - issued, _MOST_YOUNGER) for at, issued in self.vm.items()}
        lgkm = {at: min(self.lgkm_clock - issued, _MOST_YOUNGER) for at, issued in self.lgkm.items()}
        return tuple(tuple(sorted(one.items())) for one in (vm, lgkm, self.copies, self.read_across))

    @classmethod
    def thaw(cls, code: Sequence[Instruction], frozen: _Frozen, calls_wait: bool = False) -> Counters:
        """Restores a frozen state, with clocks at 0."""
        vm, lgkm, copies, across = frozen
        state = cls(
            code,
            {at: -younger for at, younger in vm},
            {at: -younger for at, younger in lgkm},
            dict(copies),
            dict(across),
            calls_wait=calls_wait,
        )
        state._note_loads()
        return state

    def _note_loads(self) -> None:
        self.vm_loads = self.lgkm_loads = 0
        for at in self.vm:
            self.vm_loads |= self.code[at].loads
        for at in self.lgkm:
            self.lgkm_loads |= self.code[at].loads

    def step(self, at: int, one: Instruction) -> None:
        """Executes the instruction at an index."""
        if one.wait_vm <= _MOST_YOUNGER and self.vm:
            self._wait_vm(one.wait_vm)
        if one.wait_lgkm <= _MOST_YOUNGER and self.lgkm:
            self._wait_lgkm(one.wait_lgkm)
        if one.leaves and self.calls_wait:
            self._wait_vm(0)
            self._wait_lgkm(0)
        if one.barrier:
            self._barrier()
        if one.counts_vm:
            self.vm_clock += 1
            self.vm[at] = self.vm_clock
            self.vm_loads |= one.loads
            if one.to_lds:
                self.copies[at] = IN_FLIGHT
        if one.counts_lgkm:
            self.lgkm_clock += 1
            self.lgkm[at] = self.lgkm_clock
            self.lgkm_loads |= one.loads

    def _wait_vm(self, most: int) -> None:
        # A flat access may go to LDS, out of order with the others.
        if most and any(self.code[at].counts_lgkm for at in self.vm):
            return
        covered = [at for at, issued in self.vm.items() if self.vm_clock - issued >= most]
        for at in covered:
            del self.vm[at]
            if at in self.copies:
                self.copies[at] = _landed(self.copies[at])
        if covered:
            self._note_loads()

    def _wait_lgkm(self, most: int) -> None:
        if most and any(self.code[at].counts_lgkm != LDS for at in self.lgkm):
            return
        covered = [at for at, issued in self.lgkm.items() if self.lgkm_clock - issued >= most]
        for at in covered:
            del self.lgkm[at]
        if covered:
            self._note_loads()

    def _barrier(self) -> None:
        in_flight = IN_FLIGHT | IN_FLIGHT_SINCE_BARRIER
        self.copies = {at: IN_FLIGHT_SINCE_BARRIER for at, phase in self.copies.items() if phase & in_flight}
        self.read_across = {at: 0 for at in self.lgkm if self.code[at].lds_read}


def _landed(phase: int) -> int:
    """The states of a copy after a wait that covers it."""
    crossed = phase & (IN_FLIGHT_SINCE_BARRIER | LANDED_SINCE_BARRIER)
    return (LANDED if phase & (IN_FLIGHT | LANDED) else 0) | (LANDED_SINCE_BARRIER if crossed else 0)


def join(first: _Frozen, second: _Frozen) -> _Frozen:
    """The union of both states, with the smaller numbers and all states of copies."""
    if first == second:
        return first
    vm, lgkm, copies, across = zip(first, second, strict=True)
    return _smaller(*vm), _smaller(*lgkm), _either(*copies), _smaller(*across)


def _smaller(a: _Numbers, b: _Numbers) -> _Numbers:
    if a == b:
        return a
    merged = dict(a)
    for at, number in b:
        merged[at] = min(number, merged.get(at, number))
    return tuple(sorted(merged.items()))


def _either(a: _Numbers, b: _Numbers) -> _Numbers:
    if a == b:
        return a
    merged = dict(a)
    for at, phase in b:
        merged[at] = phase | merged.get(at, 0)
    return tuple(sorted(merged.items()))


NOTHING: _Frozen = ((), (), (), ())
"""The state at a kernel's entry."""
