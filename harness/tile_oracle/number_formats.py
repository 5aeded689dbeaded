"""How arrays store the data types of problems, and the numbers that they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

STORAGE: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(np.uint16),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp8": np.dtype(np.uint8),
}
"""NumPy has no bf16 and no fp8 (OCP's e4m3): their bits travel as integers."""


def _fp8_values() -> npt.NDArray[np.float32]:
    """What the 256 patterns of e4m3 mean: 4 bits of exponent (bias 7), 3 of mantissa, no infinities."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent, np.ldexp(8.0 + mantissa, exponent - 10), np.ldexp(1.0 * mantissa, -9))
    size[bits & 127 == 127] = np.nan
    return np.asarray(np.where(bits & 128, -size, size), np.float32)


_FP8_VALUES = _fp8_values()


def _encode_fp8(exact: npt.NDArray[np.float32]) -> Array:
    """To nearest even; beyond the largest number, 448, that number."""
    numbers = _FP8_VALUES[:127].astype(np.float64)
    size = np.minimum(np.abs(exact).astype(np.float64), numbers[-1])
    above = np.clip(np.searchsorted(numbers, size), 1, 126)
    low, high = size - numbers[above - 1], numbers[above] - size
    # Of two patterns that follow each other one is even.
    up = (high < low) | ((high == low) & (above % 2 == 0))
    return np.asarray(np.where(up, above, above - 1) | np.signbit(exact) * 128, np.uint8)


def encode(values: Array, dtype: str) -> Array:
    """Values as the dtype stores them, rounded to nearest even."""
    exact = values.astype(np.float32)
    if dtype == "fp32":
        return exact
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return exact.astype(np.float16)
    if dtype == "fp8":
        return _encode_fp8(exact)
    bits = exact.view(np.uint32)
    rounded: Array = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return rounded


def decode(stored: Array, dtype: str) -> npt.NDArray[np.float32]:
    """The inverse of `encode`, exact."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if dtype == "fp8":
        return _FP8_VALUES[stored]
    return stored.astype(np.float32)
