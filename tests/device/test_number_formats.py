"""Storage formats: the tables of narrow ones round as ml_dtypes does, which defines the formats."""

from __future__ import annotations

import numpy as np
import pytest

from tile_oracle.problem import number_formats
from tile_oracle.problem.number_formats import decode, encode


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2", "e8m0", "fp4_e2m1"])
def test_values_round_to_the_nearest_even(dtype: str) -> None:
    upper = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    values = (upper | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).view(np.float32)
    most = number_formats._LARGEST.get(dtype, np.inf)
    with np.errstate(invalid="ignore"):
        wanted = np.clip(values, -most, most).astype(number_formats._NUMBERS[dtype])
    got = decode(encode(values, dtype), dtype)
    assert np.array_equal(got, wanted.astype(np.float32), equal_nan=True)
