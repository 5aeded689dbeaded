"""What the check of an operation with error bounds gives a kernel, and which results it takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tile_oracle.device.bounded_rows import BoundedRows
from tile_oracle.problem.number_formats import Array


def made(
    worker: BoundedRows, problem: Any, rows: int, *, far: bool, period: int | None = None
) -> tuple[list[Array], Array, Array]:
    """The operands of one of the two sets, and the least and largest right values of all rows. far: the set
    with numbers of many sizes. period: of the result's rows, if those of the first operand repeat."""
    random = np.random.default_rng(5)
    first = worker.first(problem, random, rows, far=far)
    others = worker.others(problem, random, period, far=far)
    with np.errstate(invalid="ignore"):
        low, high = worker.bounds(problem, first, others, np.arange(rows))
    return [first, *(one.whole() for one in others)], low, high
