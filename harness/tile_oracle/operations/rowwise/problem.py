"""Problems on the rows of a dense matrix: data type, rows and columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Self

from tile_oracle.errors import ProblemError
from tile_oracle.problem.fields import FlatProblem

ROW_DTYPES = ("bf16", "fp16", "fp32")
MOST = 2**24
"""Most rows and columns. A row's sum in fp32 has no useful bound above."""


@dataclass(frozen=True)
class RowProblem(FlatProblem):
    """A row-major matrix of `rows` x `columns` elements, and a result of the same shape and data type.

    Raises ProblemError for values out of range.
    """

    dtype: str

    op: ClassVar[str]
    flops_per_element: ClassVar[int]
    weighted: ClassVar[bool] = False
    """Whether the second operand is a vector with one weight per column."""

    @property
    def height(self) -> int:
        """Number of rows: the field after dtype."""
        return int(getattr(self, fields(self)[1].name))

    @property
    def width(self) -> int:
        """Number of columns: the last field. The operations name it differently, as tables are told by it."""
        return int(getattr(self, fields(self)[2].name))

    def __post_init__(self) -> None:
        self._require("dtype", ROW_DTYPES)
        self._require_integers((one.name for one in fields(self)[1:]), most=MOST)

    @cached_property
    def id(self) -> str:
        """`softmax-bf16-r64-c128`."""
        return f"{self.op}-{self.dtype}-r{self.height}-c{self.width}"

    @property
    def title(self) -> str:
        """`64 rows of 128`."""
        return f"{self.height:,} rows of {self.width:,}"

    @classmethod
    def from_id(cls, text: str) -> Self:
        """Returns the inverse of `id`. Raises ProblemError."""
        match = re.fullmatch(rf"{cls.op}-([a-z0-9]+)-r([1-9][0-9]{{0,8}})-c([1-9][0-9]{{0,8}})", text)
        if match is None:
            raise ProblemError(
                f"{text!r} is not a {cls.op} problem id; one looks like {cls.op}-bf16-r64-c128"
            )
        rows, columns = (one.name for one in fields(cls)[1:])
        return cls(dtype=match[1], **{rows: int(match[2]), columns: int(match[3])})

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The matrix, the weights if there are any, and the result."""
        matrix = (self.height, self.width)
        return (matrix, (self.width,), matrix) if self.weighted else (matrix, matrix)

    @property
    def flops(self) -> int:
        """Operations by definition; an exponential counts as one."""
        return self.flops_per_element * self.height * self.width
