"""Softmax problems: y[r, c] = exp(x[r, c] - max x[r]) / sum exp(x[r] - max x[r])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.operations.rowwise.problem import RowProblem


@dataclass(frozen=True)
class SoftmaxProblem(RowProblem):
    """See RowProblem. An element takes a maximum, a difference, an exponential, a sum and a quotient.

    length: columns of a row.
    """

    rows: int
    length: int

    op: ClassVar[str] = "softmax"
    flops_per_element: ClassVar[int] = 5
