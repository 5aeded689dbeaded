"""Bit-identical logarithms and exponentials: their accuracy and their edge cases."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.features import exact_math

NUMBERS = np.random.default_rng(0)
POSITIVE = np.concatenate(
    [
        np.exp(NUMBERS.uniform(-600, 600, 20_000)),
        1 + NUMBERS.uniform(-0.3, 0.4, 20_000),
        np.arange(1.0, 20_000),
    ]
)
EXPONENTS = np.concatenate(
    [NUMBERS.uniform(-700, 700, 20_000), NUMBERS.uniform(-1, 1, 20_000), NUMBERS.uniform(-1e-5, 1e-5, 999)]
)


@pytest.mark.parametrize(
    ("name", "inputs", "most_ulp"),
    [("log2", POSITIVE, 2), ("log", POSITIVE, 2), ("exp", EXPONENTS, 2), ("expm1", EXPONENTS, 3)],
)
def test_as_exact_as_numpys_own(name: str, inputs: np.ndarray, most_ulp: int) -> None:
    """numpy's own results are within one unit in the last place."""
    ours, theirs = getattr(exact_math, name)(inputs), getattr(np, name)(inputs)
    np.testing.assert_array_max_ulp(ours, theirs, maxulp=most_ulp)
    assert (ours == theirs).mean() > 0.8


@given(st.integers(-1022, 1023))
def test_powers_of_two_have_whole_logarithms(power: int) -> None:
    assert exact_math.log2(math.ldexp(1.0, power)) == power


def test_a_logarithm_splits_as_sums_do() -> None:
    """log2(8 x) is log2(x) + 3 to the last place: only the mantissa is approximated."""
    x = NUMBERS.uniform(1, 2, 1000)
    assert exact_math.log2(8 * x) == pytest.approx(exact_math.log2(x) + 3, abs=2**-51)
    assert Fraction(float(exact_math.exp(0.0))) == 1


def test_edges() -> None:
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        for log in (exact_math.log, exact_math.log2):
            assert log(np.array([0.0, np.inf, 1.0])).tolist() == [-np.inf, np.inf, 0.0]
            assert np.isnan(log(np.array([-1.0, np.nan]))).all()
        assert exact_math.exp(np.array([0.0, 800.0, -800.0])).tolist() == [1.0, np.inf, 0.0]
        assert exact_math.expm1(np.array([0.0, 800.0, -800.0])).tolist() == [0.0, np.inf, -1.0]


def test_any_shape() -> None:
    table = np.arange(1.0, 13).reshape(3, 4)
    assert exact_math.log2(table[:, 1:]).shape == (3, 3)
    assert (exact_math.log2(table.T) == exact_math.log2(table).T).all()
    assert exact_math.log(2.0).shape == ()
    assert exact_math.exp(np.zeros((0,))).shape == (0,)
