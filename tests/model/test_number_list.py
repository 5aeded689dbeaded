"""Numbers in a model's text are read exactly, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.model.model_text import numbers_of


@given(st.lists(st.floats()))
def test_every_double_comes_back(values: list[float]) -> None:
    found = numbers_of(" ".join(map(repr, values)))
    assert found.dtype == np.float64
    assert np.array_equal(found, np.array(values, dtype=np.float64), equal_nan=True)


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=24), max_size=20))
def test_long_decimals_are_rounded_as_python_rounds_them(values: list[object]) -> None:
    texts = [str(value) for value in values]
    assert np.array_equal(numbers_of(" ".join(texts)), np.array([float(text) for text in texts]))


@pytest.mark.parametrize("text", ["1 2 x", "1,2", "1-2", "x", "1 2-", "1_000", "0x10", "1 -", "e5"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of numbers"):
        numbers_of(text)
