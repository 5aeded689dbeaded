"""Softmax problems: y[r, c] = exp(x[r, c] - max_c x[r, c]) / the row's sum, of a dense fp32 matrix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from tile_oracle.errors import ProblemError
from tile_oracle.problem.fields import FlatProblem


@dataclass(frozen=True)
class SoftmaxProblem(FlatProblem):
    dtype: str
    rows: int
    columns: int

    op: ClassVar[str] = "row_softmax"

    def __post_init__(self) -> None:
        if self.dtype != "fp32":
            raise ProblemError(f"dtype {self.dtype!r} is not fp32")
        if not (1 <= self.rows <= 2**20 and 1 <= self.columns <= 2**20):
            raise ProblemError("rows and columns are from 1 to 2^20")

    @cached_property
    def id(self) -> str:
        return f"row_softmax-{self.dtype}-r{self.rows}-c{self.columns}"

    @classmethod
    def from_id(cls, text: str) -> SoftmaxProblem:
        match = re.fullmatch(r"row_softmax-([a-z0-9]+)-r([1-9][0-9]*)-c([1-9][0-9]*)", text)
        if match is None:
            raise ProblemError(f"{text!r} is no softmax problem id; one looks like row_softmax-fp32-r64-c128")
        return cls(match[1], int(match[2]), int(match[3]))

    @property
    def operand_shapes(self) -> tuple[tuple[int, int], ...]:
        return ((self.rows, self.columns), (self.rows, self.columns))

    @property
    def flops(self) -> int:
        """Maximum, difference, exponential, sum and quotient of each element."""
        return 5 * self.rows * self.columns
