"""Operands that repeat their values."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.device.bounded_rows import Repeated


@given(
    st.integers(1, 40),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 7)),
    st.integers(0, 23),
    st.integers(0, 23),
)
def test_rows_are_those_of_the_whole(
    period: int, shape: tuple[int, int, int], begin: int, count: int
) -> None:
    operand = Repeated(np.arange(min(period, math.prod(shape)), dtype=np.uint16), shape)
    whole = operand.whole()
    assert whole.shape == shape
    assert operand.size == whole.size
    rows = whole.reshape(-1, shape[-1])
    begin = min(begin, len(rows))
    end = min(begin + count, len(rows))
    assert (operand.rows(begin, end) == rows[begin:end]).all()
