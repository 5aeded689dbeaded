"""What a declaration of a Triton kernel sees of an operation on rows."""

from __future__ import annotations

from types import MappingProxyType

from tile_oracle.operation import Kind
from tile_oracle.operations.rms_norm.problem import EPSILON
from tile_oracle.operations.rowwise.problem import ROW_DTYPES
from tile_oracle.triton.views import FIRST, OUT, SECOND, Pointer, ProblemView


class RowView(ProblemView):
    """An operation on rows. Its numbers are the extents of the matrix."""

    kinds = MappingProxyType({"dtype": ROW_DTYPES})

    def __init__(self, kind: Kind, arch: str) -> None:
        super().__init__(kind, arch)
        rows, columns = (getattr(self, name) for name in self.numbers)
        self.x = Pointer(FIRST, self.dtype, rows * columns)
        if "w" in self.arrays:
            self.w = Pointer(SECOND, self.dtype, columns)
        self.y = Pointer(OUT, self.dtype, rows * columns)

    def contiguous(self) -> tuple[str, ...]:
        """Returns the length of a row."""
        return self.numbers[1:]


class SoftmaxView(RowView):
    """Softmax of each row. rows, length: extents of the matrix. x, y: operand and result, both by rows."""

    op = "softmax"
    numbers = ("rows", "length")
    arrays = ("x", "y")


class RmsNormView(RowView):
    """RMS normalization of each row. tokens, hidden: extents of the matrix. x, w, y: matrix, weights and
    result. epsilon: what is added to the mean."""

    op = "rms_norm"
    numbers = ("tokens", "hidden")
    arrays = ("x", "w", "y")
    epsilon = EPSILON

    def usual_arguments(self) -> dict[str, object]:
        """x_ptr, w_ptr, y_ptr, tokens, hidden, epsilon."""
        return super().usual_arguments() | {"epsilon": self.epsilon}
