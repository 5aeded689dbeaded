"""Tracks the outstanding instructions of vmcnt and lgkmcnt along all paths.

For each load that may be outstanding, the abstract state has the smallest number of younger instructions of
the same counter over all paths. `s_waitcnt vmcnt(n)` covers the load exactly when that number is at least n.
A join is the union with the smaller number, which is exact for each single load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_oracle.verify.instructions import LDS, NO_WAIT, Instruction

_MOST_YOUNGER = 63
"""The largest count of vmcnt; larger numbers need no distinction."""

_Numbers = tuple[tuple[int, int], ...]
_Frozen = tuple[_Numbers, _Numbers]


@dataclass
class Outstanding:
    """The outstanding instructions of one counter. issued: index -> the counter's clock when it was issued.
    loads: the registers that they write."""

    code: Sequence[Instruction]
    issued: dict[int, int]
    clock: int = 0
    loads: int = 0

    def __post_init__(self) -> None:
        for at in self.issued:
            self.loads |= self.code[at].loads

    def freeze(self) -> _Numbers:
        """Returns the state in relative numbers, which can be compared and joined."""
        return tuple(sorted((at, min(self.clock - one, _MOST_YOUNGER)) for at, one in self.issued.items()))

    def waited(self, most: int) -> Outstanding:
        """Returns the state behind a wait for this count."""
        if most >= NO_WAIT or not self.issued:
            return self
        left = {at: issued for at, issued in self.issued.items() if self.clock - issued < most}
        return Outstanding(self.code, left, self.clock)

    def issue(self, at: int, one: Instruction) -> None:
        """Adds the instruction at an index."""
        self.clock += 1
        self.issued[at] = self.clock
        self.loads |= one.loads


@dataclass
class Counters:
    """calls_wait: whether functions that are called wait for all that is outstanding."""

    vm: Outstanding
    lgkm: Outstanding
    calls_wait: bool = False

    def freeze(self) -> _Frozen:
        """Returns the state in relative numbers."""
        return self.vm.freeze(), self.lgkm.freeze()

    @classmethod
    def thaw(cls, code: Sequence[Instruction], frozen: _Frozen, calls_wait: bool = False) -> Counters:
        """Restores a frozen state, with clocks at 0."""
        vm, lgkm = (Outstanding(code, {at: -younger for at, younger in one}) for one in frozen)
        return cls(vm, lgkm, calls_wait)

    def waits(self, one: Instruction) -> tuple[int, int]:
        """Returns the counts of vmcnt and lgkmcnt down to which an instruction waits, in order of issue."""
        if one.leaves and self.calls_wait:
            return 0, 0
        vm, lgkm, code = one.wait_vm, one.wait_lgkm, self.vm.code
        # A flat access may go to LDS, out of order with the others. Scalar loads are out of order.
        if 0 < vm < NO_WAIT and any(code[at].counts_lgkm for at in self.vm.issued):
            vm = NO_WAIT
        if 0 < lgkm < NO_WAIT and any(code[at].counts_lgkm != LDS for at in self.lgkm.issued):
            lgkm = NO_WAIT
        return vm, lgkm

    def step(self, at: int, one: Instruction) -> None:
        """Executes the instruction at an index."""
        vm, lgkm = self.waits(one)
        self.vm, self.lgkm = self.vm.waited(vm), self.lgkm.waited(lgkm)
        if one.counts_vm:
            self.vm.issue(at, one)
        if one.counts_lgkm:
            self.lgkm.issue(at, one)


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
