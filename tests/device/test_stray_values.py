"""Unwritten values and NaN in stored arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tile_oracle.device.stray_values import nan_count
from tile_oracle.problem.number_formats import STORAGE, encode


# e2m1 has no NaN, and is of operands alone.
@pytest.mark.parametrize("dtype", sorted(STORAGE.keys() - {"fp4_e2m1"}))
def test_nan_is_counted_in_every_type(dtype: str) -> None:
    stored = encode(np.array([1.0, np.nan, -np.nan, 448.0], np.float32), dtype)
    assert nan_count(stored, dtype) == 2
