"""Softmax problems: y[r, c] = exp(x[r, c] - max_c x[r, c]) / the row's sum, of a dense fp32 matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.problem.fields import FlatProblem


@dataclass(frozen=True)
class SoftmaxProblem(FlatProblem):
    dtype: str
    rows: int
    columns: int

    op: ClassVar[str] = "row_softmax"
    id_format: ClassVar[str] = "{dtype}-r{rows}-c{columns}"
    example_id: ClassVar[str] = "row_softmax-fp32-r64-c128"

    def __post_init__(self) -> None:
        self._require("dtype", ("fp32",))
        self._require_integers(("rows", "columns"), most=2**20)

    @property
    def operand_shapes(self) -> tuple[tuple[int, int], ...]:
        return ((self.rows, self.columns), (self.rows, self.columns))

    @property
    def flops(self) -> int:
        """Maximum, difference, exponential, sum and quotient of each element."""
        return 5 * self.rows * self.columns
