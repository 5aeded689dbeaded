"""RMS normalization in a worker process: its definition and the errors that docs/verification.md derives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_oracle.device.bounded_rows import UNIT, Exact, error_of_sum
from tile_oracle.operations.rms_norm.problem import EPSILON
from tile_oracle.operations.rowwise.on_device import Reference, RowsInWorker

_FACTOR, _PRODUCTS = 5 * UNIT, 2 * UNIT


def definition(operands: Sequence[Exact]) -> Reference:
    """Returns the result in fp64 and the error of its computation in fp32."""
    matrix, weights = operands
    mean = (matrix * matrix).mean(axis=1, keepdims=True)
    value = np.asarray(matrix / np.sqrt(mean + EPSILON) * weights)
    of_mean = error_of_sum(matrix.shape[1]) + 4 * UNIT
    return Reference(value, np.full(value.shape, of_mean / 2 + _FACTOR + _PRODUCTS))


WORKER = RowsInWorker(definition, {"bf16": 20, "fp32": 20, "fp16": 8}, (np.nan, np.inf, -np.inf))
