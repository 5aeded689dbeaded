"""Tracks the outstanding instructions of vmcnt and lgkmcnt along all paths.

For each load that may be outstanding, the abstract state has the smallest number of younger instructions of
the same counter over all paths. `s_waitcnt vmcnt(n)` covers the load exactly when that number is at least n.
A join is the union with the smaller number, which is exact for each single load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tile_oracle.verify.instructions import LDS, NO_WAIT, Instruction

_MOST_YOUNGER = 63
"""The largest count of vmcnt; larger numbers need no distinction."""

_Numbers = tuple[tuple[int, int], ...]
_Frozen = tuple[_Numbers, ...]


@dataclass
class Counters:
    """vm, lgkm: index of an outstanding instruction -> the counter's clock when it was issued. calls_wait:
    whether functions that are called wait for all that is outstanding."""

    code: Sequence[Instruction]
    vm: dict[int, int] = field(default_factory=dict)
    lgkm: dict[int, int] = field(default_factory=dict)
    vm_clock: int = 0
    lgkm_clock: int = 0
    vm_loads: int = 0
    lgkm_loads: int = 0
    calls_wait: bool = False

    def freeze(self) -> _Frozen:
        """Returns the state in relative numbers, which can be compared and joined."""
        vm = {at: min(self.vm_clock - issued, _MOST_YOUNGER) for at, issued in self.vm.items()}
        lgkm = {at: min(self.lgkm_clock - issued, _MOST_YOUNGER) for at, issued in self.lgkm.items()}
        return tuple(tuple(sorted(one.items())) for one in (vm, lgkm))

    @classmethod
    def thaw(cls, code: Sequence[Instruction], frozen: _Frozen, calls_wait: bool = False) -> Counters:
        """Restores a frozen state, with clocks at 0."""
        vm, lgkm = frozen
        state = cls(
            code,
            {at: -younger for at, younger in vm},
            {at: -younger for at, younger in lgkm},
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

    def waits(self, one: Instruction) -> tuple[int, int]:
        """Returns the counts of vmcnt and lgkmcnt down to which an instruction waits, in order of issue."""
        if one.leaves and self.calls_wait:
            return 0, 0
        vm, lgkm = one.wait_vm, one.wait_lgkm
        # A flat access may go to LDS, out of order with the others. Scalar loads are out of order.
        if 0 < vm < NO_WAIT and any(self.code[at].counts_lgkm for at in self.vm):
            vm = NO_WAIT
        if 0 < lgkm < NO_WAIT and any(self.code[at].counts_lgkm != LDS for at in self.lgkm):
            lgkm = NO_WAIT
        return vm, lgkm

    def step(self, at: int, one: Instruction) -> None:
        """Executes the instruction at an index."""
        vm, lgkm = self.waits(one)
        if vm < NO_WAIT and self.vm:
            self.vm = {at: issued for at, issued in self.vm.items() if self.vm_clock - issued < vm}
            self._note_loads()
        if lgkm < NO_WAIT and self.lgkm:
            self.lgkm = {at: issued for at, issued in self.lgkm.items() if self.lgkm_clock - issued < lgkm}
            self._note_loads()
        if one.counts_vm:
            self.vm_clock += 1
            self.vm[at] = self.vm_clock
            self.vm_loads |= one.loads
        if one.counts_lgkm:
            self.lgkm_clock += 1
            self.lgkm[at] = self.lgkm_clock
            self.lgkm_loads |= one.loads


def join(first: _Frozen, second: _Frozen) -> _Frozen:
    """Returns the union of both states, with the smaller numbers."""
    if first == second:
        return first
    vm, lgkm = zip(first, second, strict=True)
    return _smaller(*vm), _smaller(*lgkm)


def _smaller(a: _Numbers, b: _Numbers) -> _Numbers:
    if a == b:
        return a
    merged = dict(a)
    for at, number in b:
        merged[at] = min(number, merged.get(at, number))
    return tuple(sorted(merged.items()))


NOTHING: _Frozen = ((), ())
"""The state at a kernel's entry."""
