"""Softmax in a worker process: its definition, with the errors that docs/verification.md derives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_oracle.device.bounded_rows import UNIT, Exact, error_of_sum
from tile_oracle.operations.rowwise.on_device import Reference, RowsInWorker

_EXPONENTIAL, _QUOTIENT = 8 * UNIT, 4 * UNIT
_PER_DISTANCE = 3 * UNIT
"""Per unit of |x - max|: roundings of the difference, of log2(e) and of the product with it."""


def definition(operands: Sequence[Exact]) -> Reference:
    """Returns the result in fp64 and the error of its computation in fp32."""
    (matrix,) = operands
    distance = matrix.max(axis=1, keepdims=True) - matrix
    terms = np.exp(-distance)
    value = np.asarray(terms / terms.sum(axis=1, keepdims=True))
    of_term = _PER_DISTANCE * np.minimum(distance, 128.0) + _EXPONENTIAL
    of_sum = (value * of_term).sum(axis=1, keepdims=True) + error_of_sum(matrix.shape[1])
    return Reference(value, np.asarray(of_term + of_sum + _QUOTIENT))


WORKER = RowsInWorker(definition, {"bf16": 20, "fp32": 20, "fp16": 8}, (np.nan, -np.inf))
"""No infinity: a row with one is NaN as a whole if the maximum is subtracted, and else zero beside it."""
