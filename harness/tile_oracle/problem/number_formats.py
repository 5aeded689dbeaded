"""Conversion between numbers and the storage formats of the problems' data types."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

STORAGE: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(np.uint16),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "e8m0"), np.dtype(np.uint8)),
}
"""NumPy has no bf16, no fp8 (OCP's e4m3, which fp8 alone means, and e5m2), no e2m1 and no e8m0, the format of
MX scales: their bits are integers. A byte holds two e2m1, the first in its lower half."""


_NUMBERS: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **dict.fromkeys(("fp8", "fp8_e4m3"), np.dtype(ml_dtypes.float8_e4m3fn)),
    "fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "fp4_e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
_LARGEST = {"fp8": 448.0, "fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "fp4_e2m1": 6.0}


def encode(values: Array, dtype: str) -> Array:
    """Converts values to the dtype's storage format, rounding to nearest even; fp8 and fp4 saturate."""
    exact = values.astype(np.float32)
    if dtype == "fp32":
        return exact
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return exact.astype(np.float16)
    if dtype == "bf16":
        return exact.astype(_NUMBERS[dtype]).view(STORAGE[dtype])
    bits = exact.view(np.uint32)
    # Whether anything was cut off decides only between two numbers that are equally near without it.
    stored: Array = _nearest(dtype)[(bits >> 16).astype(np.uint16) | ((bits & 0xFFFF) != 0)]
    return stored[..., ::2] | stored[..., 1::2] << 4 if dtype == "fp4_e2m1" else stored


@cache
def _nearest(dtype: str) -> Array:
    """Returns the codes of an 8-bit or narrower format that are nearest to the upper 16 bits of fp32: these
    hold at least two bits more than a significand. A table is several times as fast as ml_dtypes."""
    exact = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    if (largest := _LARGEST.get(dtype)) is not None:
        # GPUs saturate; ml_dtypes alone converts values out of range to NaN or infinity.
        exact = np.clip(exact, -largest, largest)
    with np.errstate(invalid="ignore"):  # NaN
        return exact.astype(_NUMBERS[dtype]).view(STORAGE[dtype])


def numbers(stored: Array, dtype: str) -> Array:
    """Returns a view of the stored values with a type that NumPy can compute with; of fp4 a copy."""
    if dtype == "fp4_e2m1":
        stored = np.stack((stored & 15, stored >> 4), axis=-1).reshape(*stored.shape[:-1], -1)
    return stored.view(_NUMBERS[dtype]) if dtype in _NUMBERS else stored


def decode(stored: Array, dtype: str) -> npt.NDArray[np.float32]:
    """Converts stored values to float32, exactly; the inverse of `encode`."""
    if STORAGE[dtype].itemsize > 1:
        return numbers(stored, dtype).astype(np.float32)
    values: npt.NDArray[np.float32] = _of_bytes(dtype)[stored]
    return values.reshape(*stored.shape[:-1], -1) if dtype == "fp4_e2m1" else values


@cache
def _of_bytes(dtype: str) -> npt.NDArray[np.float32]:
    """Returns the number of every byte, or the pair."""
    every = numbers(np.arange(256, dtype=np.uint8)[:, None], dtype).astype(np.float32)
    return every if every.shape[1] > 1 else every[:, 0]
