"""Operations on the rows of a matrix: softmax, RMS normalization, and those of other packages.

What only workers import is in `on_device` (`RowsInWorker`, `Reference`).
"""

from tile_oracle.operations.rowwise.cpu_source import unit
from tile_oracle.operations.rowwise.problem import RowKernel, RowProblem
from tile_oracle.operations.rowwise.row_operation import row_operation

__all__ = ["RowKernel", "RowProblem", "row_operation", "unit"]
