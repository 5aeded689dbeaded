"""Which pairs teach most about a model's kernels elsewhere (`tile-oracle model train --adapt`).

The model's first picks of some problems are measured: kernels that it never ranks high need no correction.
Each measurement makes the shift of its kernel more certain, the first ones most. So the problems are chosen
whose picks are kernels that the model ranks high for many problems and that were chosen for few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PICKS = 10
"""Measured kernels of a problem. Fewer leave out kernels that may be the best elsewhere."""


def covering_problems(picks: Sequence[Sequence[str]], pairs: int) -> list[int]:
    """Choose the problems to measure, until their picks are at least `pairs`; return their numbers in order.

    picks: the kernels to measure for each problem. A kernel that n chosen problems measure counts
    w / ((1 + n) (2 + n)) for the next one: by so much does w / (1 + n), its share of the uncertainty, fall.
    w: the number of problems that have the kernel among their picks.
    """
    names = sorted({name for one in picks for name in one})
    place = {name: number for number, name in enumerate(names)}
    rows = [np.array([place[name] for name in one], dtype=np.int64) for one in picks]
    often = np.bincount(np.concatenate([*rows, np.zeros(0, dtype=np.int64)]), minlength=len(names))
    measured = np.zeros(len(names))
    left = list(range(len(rows)))
    chosen: list[int] = []
    while left and sum(len(rows[number]) for number in chosen) < pairs:
        gain = often / ((1 + measured) * (2 + measured))
        best = max(left, key=lambda number: (float(gain[rows[number]].sum()), -number))
        left.remove(best)
        chosen.append(best)
        measured[rows[best]] += 1
    return chosen
