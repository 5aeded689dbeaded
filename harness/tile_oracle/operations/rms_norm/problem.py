"""RMS normalization: y[r, c] = x[r, c] w[c] / sqrt(mean of x[r]^2 + EPSILON), rounded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.operations.rowwise.problem import RowProblem

EPSILON = 1e-6


@dataclass(frozen=True)
class RmsNormProblem(RowProblem):
    """See RowProblem. An element takes a square, a sum and two products.

    tokens: rows. hidden: columns.
    """

    tokens: int
    hidden: int

    op: ClassVar[str] = "rms_norm"
    flops_per_element: ClassVar[int] = 4
    weighted: ClassVar[bool] = True
