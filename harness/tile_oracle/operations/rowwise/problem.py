"""Problems on the rows of a dense matrix: data type, rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_oracle.kernel.sized import SizedKernel
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

    flops_per_element: ClassVar[int]
    weighted: ClassVar[bool] = False
    """Whether the second operand is a vector with one weight per column."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.example_id = f"{cls.op}-bf16-r64-c128"

    @property
    def height(self) -> int:
        """Number of rows: the field after dtype."""
        return int(getattr(self, self.field_names()[1]))

    @property
    def width(self) -> int:
        """Number of columns: the last field. The operations name it differently, as tables are told by it."""
        return int(getattr(self, self.field_names()[2]))

    def __post_init__(self) -> None:
        self._require("dtype", ROW_DTYPES)
        self._require_integers(self.field_names()[1:], most=MOST)

    @classmethod
    def _id_format(cls) -> str:
        """Returns `{dtype}-r{rows}-c{length}`, with an operation's own names."""
        _, rows, columns = cls.field_names()
        return f"{{dtype}}-r{{{rows}}}-c{{{columns}}}"

    @property
    def title(self) -> str:
        """`64 rows of 128`."""
        return f"{self.height:,} rows of {self.width:,}"

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The matrix, the weights if there are any, and the result."""
        matrix = (self.height, self.width)
        return (matrix, (self.width,), matrix) if self.weighted else (matrix, matrix)

    @property
    def flops(self) -> int:
        """Operations by definition; an exponential counts as one."""
        return self.flops_per_element * self.height * self.width


# ---- The project's own kernels on rows for the target cpu ----------------------------------------


@dataclass(frozen=True)
class RowKernel(SizedKernel):
    """One kernel. lanes: elements that it reduces in parallel."""

    dtype: str
    lanes: int

    sizes: ClassVar = {"lanes": (1, 4, 16, 32)}
