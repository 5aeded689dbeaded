"""Counts output values that were left unwritten or are NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.problem.number_formats import numbers

POISON_BYTE = 0xFF
"""Fills outputs before a run. All dtypes but fp4 (e2m1 has no NaN) read it as NaN, and no kernel
writes exactly it by accident."""


def poison(bits_type: np.dtype[Any]) -> Any:
    """Returns a poisoned value as an unsigned integer of this type."""
    return np.array([POISON_BYTE] * bits_type.itemsize, np.uint8).view(bits_type)[0]


def unwritten(out: npt.NDArray[Any]) -> str | None:
    """Returns how many values of a poisoned output were not written; None when all were."""
    bits_type = np.dtype(f"u{out.itemsize}")
    count = int(np.count_nonzero(out.view(bits_type) == poison(bits_type)))
    return f"left {count:,} of {out.size:,} values unwritten" if count else None


def nan_count(stored: npt.NDArray[Any], dtype: str) -> int:
    """Returns the number of NaNs in an array in the dtype's storage format."""
    with np.errstate(invalid="ignore"):  # ml_dtypes warns about NaN even in isnan
        return int(np.count_nonzero(np.isnan(numbers(stored, dtype))))
