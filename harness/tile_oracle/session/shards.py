"""--shard I/N: the problems of one of N sessions that share the work of a problem set, such as array jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace

from tile_oracle.errors import HarnessError

_FORM = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count`."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def problems(self, times: Mapping[str, float]) -> frozenset[str]:
        """Returns the problems of this part. times: problem id -> expected time, of all problems.

        Longest processing time first (Graham, SIAM Journal on Applied Mathematics 17, 1969): each problem
        goes to the part with the least work so far. The result depends on nothing but the times, so that all
        N sessions divide alike, and every problem is in one part.
        """
        loads = [(0.0, number) for number in range(1, self.count + 1)]
        heapify(loads)
        own = set()
        for problem in sorted(times, key=lambda problem: (-times[problem], problem)):
            load, number = loads[0]
            if number == self.number:
                own.add(problem)
            heapreplace(loads, (load + times[problem], number))
        return frozenset(own)


def read_shard(text: str) -> Shard:
    """Returns the part of I/N. Raises HarnessError."""
    match = _FORM.fullmatch(text.strip())
    shard = Shard(int(match[1]), int(match[2])) if match is not None else None
    if shard is None or not 1 <= shard.number <= shard.count:
        raise HarnessError(f"--shard {text[:100]!r} is not a part such as 1/8, 2/8, ... 8/8")
    return shard
