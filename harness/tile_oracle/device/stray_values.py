"""Values of an output that tell of a kernel that did not do its work: unwritten ones, and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tile_oracle.number_formats import numbers

POISON_BYTE = 0xFF
"""What outputs are filled with: every dtype reads it as NaN, and no kernel writes just that by accident."""


def unwritten(out: npt.NDArray[Any]) -> str | None:
    """How many values of a poisoned output still are what they were, in words; None for none."""
    bits_type = np.dtype(f"u{out.itemsize}")
    poison = np.array([POISON_BYTE] * bits_type.itemsize, np.uint8).view(bits_type)[0]
    count = int(np.count_nonzero(out.view(bits_type) == poison))
    return f"left {count:,} of {out.size:,} values unwritten" if count else None


def nan_count(stored: npt.NDArray[Any], dtype: str) -> int:
    """How many values are NaN, of an array as the dtype is stored."""
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of NaN even where it is looked for
        return int(np.count_nonzero(np.isnan(numbers(stored, dtype))))
