"""What a declaration of a Triton kernel sees of an operation on rows."""

from __future__ import annotations

from types import MappingProxyType

from tile_oracle.operation import Kind
from tile_oracle.operations.rms_norm.problem import EPSILON
from tile_oracle.operations.rowwise.problem import ROW_DTYPES
from tile_oracle.triton.expression import Expression, number
from tile_oracle.triton.views import FIRST, OUT, SECOND, Pointer, ProblemView


class SoftmaxView(ProblemView):
    """Softmax of each row. rows, length: extents of the matrix. x, y: operand and result, both by rows."""

    op = "softmax"
    numbers = ("rows", "length")
    kinds = MappingProxyType({"dtype": ROW_DTYPES})

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.rows: Expression = number("rows")
        self.length: Expression = number("length")
        self.x = Pointer(FIRST, self.dtype, self.rows * self.length)
        self.y = Pointer(OUT, self.dtype, self.rows * self.length)

    def usual_arguments(self) -> dict[str, object]:
        """x_ptr, y_ptr, rows, length."""
        return {"x_ptr": self.x, "y_ptr": self.y, "rows": self.rows, "length": self.length}

    def contiguous(self) -> tuple[str, ...]:
        """Returns the length of a row."""
        return ("length",)


class RmsNormView(ProblemView):
    """RMS normalization of each row. tokens, hidden: extents of the matrix. x, w, y: matrix, weights and
    result. epsilon: what is added to the mean."""

    op = "rms_norm"
    numbers = ("tokens", "hidden")
    kinds = MappingProxyType({"dtype": ROW_DTYPES})
    epsilon = EPSILON

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        self.tokens: Expression = number("tokens")
        self.hidden: Expression = number("hidden")
        self.x = Pointer(FIRST, self.dtype, self.tokens * self.hidden)
        self.w = Pointer(SECOND, self.dtype, self.hidden)
        self.y = Pointer(OUT, self.dtype, self.tokens * self.hidden)

    def usual_arguments(self) -> dict[str, object]:
        """x_ptr, w_ptr, y_ptr, tokens, hidden, epsilon."""
        arrays = {"x_ptr": self.x, "w_ptr": self.w, "y_ptr": self.y}
        return arrays | {"tokens": self.tokens, "hidden": self.hidden, "epsilon": self.epsilon}

    def contiguous(self) -> tuple[str, ...]:
        """Returns the length of a row."""
        return ("hidden",)
