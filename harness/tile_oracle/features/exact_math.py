"""log2, log, exp and expm1 that are bit-identical on every machine and in the native selector.

numpy's versions differ in the last place between processors (it has several SIMD versions of each). Here each
function is a fixed sequence of correctly rounded IEEE 754 operations: +, -, *, /, rounding to an integer, and
splitting a number into mantissa and exponent. `tile_oracle/exact_math.hpp` has the same sequences, and a test
compares the two bit for bit. Errors are at most 1 ulp (expm1: 2 ulp), and log2 is exact for powers of two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # ln(2) to 32 bits: its product with an exponent is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # the rest of ln(2)
_INV_LN2 = float.fromhex("0x1.71547652b82fep+0")
_INV_LN2_HIGH = float.fromhex("0x1.7154760000000p+0")  # 1/ln(2) to 24 bits: its product with 26 bits is exact
_INV_LN2_LOW = float.fromhex("0x1.4ae0bf85ddf44p-26")  # the rest of 1/ln(2)
_SPLIT = 134217729.0  # 2^27 + 1: x*_SPLIT - (x*_SPLIT - x) is x to 26 bits
_ATANH = tuple(2.0 / (2 * k + 1) for k in range(10, 0, -1))  # highest power first, for |s| <= 0.172
_EXP = tuple(1.0 / _n for _n in (
    6227020800, 479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2,
))  # fmt: skip # 1/13! to 1/2!, highest power first, for |r| <= ln(2)/2
_HIGHEST = 709.0
_LOWEST = -708.0


def log(x: Any) -> Array:
    """Natural logarithm. 0 gives -inf, a negative number NaN. Subnormal numbers are not supported."""
    values = np.asarray(x, dtype=np.float64)
    exponent, f, half_square, rest = _reduced(values)
    return _at_the_edges(values, exponent * _LN2_HIGH - ((half_square - (rest + exponent * _LN2_LOW)) - f))


def log2(x: Any) -> Array:
    """Logarithm to base 2. 0 gives -inf, a negative number NaN. Subnormal numbers are not supported."""
    values = np.asarray(x, dtype=np.float64)
    exponent, f, half_square, rest = _reduced(values)
    high = f - half_square
    scaled = high * _SPLIT
    high = scaled - (scaled - high)
    low = ((f - high) - half_square) + rest
    whole = high * _INV_LN2_HIGH
    found = exponent + whole
    small = (low + high) * _INV_LN2_LOW + low * _INV_LN2_HIGH
    small = small + ((exponent - found) + whole)
    return _at_the_edges(values, small + found)


def exp(x: Any) -> Array:
    """e^x; inf above 709 and 0 below -708."""
    values = np.asarray(x, dtype=np.float64)
    scale, less_one = _power(values)
    found = scale * (1.0 + less_one)
    return np.where(values > _HIGHEST, np.inf, np.where(values < _LOWEST, 0.0, found))


def expm1(x: Any) -> Array:
    """e^x - 1, accurate near 0; inf above 709 and -1 below -708."""
    values = np.asarray(x, dtype=np.float64)
    scale, less_one = _power(values)
    found = scale * less_one + (scale - 1.0)
    return np.where(values > _HIGHEST, np.inf, np.where(values < _LOWEST, -1.0, found))


def _reduced(values: Array) -> tuple[Array, Array, Array, Array]:
    """Range reduction: x = 2^exponent (1 + f) with f from sqrt(1/2) - 1 to sqrt(2) - 1.

    Returns exponent, f, f^2/2 and the rest of ln(1 + f) = f - f^2/2 + rest, from the series of
    2 atanh(f/(2 + f)).
    """
    bits = np.atleast_1d(values).view(np.int64).reshape(values.shape)
    exponent = ((bits >> 52) - 1022).astype(np.float64)
    mantissa = ((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000).view(np.float64)
    low = mantissa < _SQRT_HALF
    f = np.where(low, mantissa + mantissa, mantissa) - 1.0
    exponent = np.where(low, exponent - 1.0, exponent)
    s = f / (2.0 + f)
    square = s * s
    series = np.full_like(square, _ATANH[0])
    for term in _ATANH[1:]:
        series *= square
        series += term
    half_square = (0.5 * f) * f
    return exponent, f, half_square, s * (half_square + series * square)


def _power(values: Array) -> tuple[Array, Array]:
    """Returns scale and less_one of e^x = scale (1 + less_one), where scale is a power of two and
    |less_one| <= sqrt(2) - 1."""
    inside = np.minimum(np.maximum(values, _LOWEST), _HIGHEST)
    times = np.rint(inside * _INV_LN2)
    r = (inside - times * _LN2_HIGH) - times * _LN2_LOW
    series = np.full_like(r, _EXP[0])
    for term in _EXP[1:]:
        series *= r
        series += term
    return np.ldexp(1.0, times.astype(np.int64)), r + (r * r) * series


def _at_the_edges(values: Array, found: Array) -> Array:
    inside = (values > 0) & (values < np.inf)
    if inside.all():
        return np.asarray(found)
    edges = np.where(values == 0, -np.inf, np.where(values == np.inf, np.inf, np.nan))
    return np.where(inside, found, edges)
