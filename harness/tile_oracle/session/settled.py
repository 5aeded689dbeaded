"""The recorded measurements of a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from tile_oracle.kernel import Kernel
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem


@dataclass(frozen=True)
class Settled(Sequence[Measurement]):
    """The settled measurements of a problem, in the order of the requested kernels. Each is made when it is
    looked at: a replay of a hundred thousand pairs looks at few.

    any_ok: whether one of them is ok.
    """

    problem: Problem
    kernels: tuple[Kernel, ...]
    any_ok: bool
    make: Callable[[Problem, Kernel], Measurement]

    def __len__(self) -> int:
        return len(self.kernels)

    @overload
    def __getitem__(self, place: int) -> Measurement: ...
    @overload
    def __getitem__(self, place: slice) -> list[Measurement]: ...
    def __getitem__(self, place: int | slice) -> Measurement | list[Measurement]:
        if isinstance(place, slice):
            return [self.make(self.problem, kernel) for kernel in self.kernels[place]]
        return self.make(self.problem, self.kernels[place])
