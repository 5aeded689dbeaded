"""The reference compared with plain loops over the definition of convolution, written independently."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integer_operands import integer_operands
from tile_oracle.device.reference import exact_output
from tile_oracle.device.stray_values import nan_count
from tile_oracle.errors import ProblemError
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES, GroupedConvProblem
from tile_oracle.problem.number_formats import STORAGE, decode, encode


@st.composite
def problems(draw: st.DrawFn) -> GroupedConvProblem:
    """Small problems of every direction and rank, with stride, padding, dilation and groups."""
    ndim, groups = draw(st.sampled_from([2, 3])), draw(st.sampled_from([1, 1, 2, 3]))
    small = st.integers(1, 3)
    axes: dict[str, int] = {}
    for axis, (extent, filter_) in {"d": ("Di", "Z"), "h": ("Hi", "Y"), "w": ("Wi", "X")}.items():
        if axis == "d" and ndim == 2:
            continue
        axes |= {extent: draw(st.integers(1, 5)), filter_: draw(small), f"stride_{axis}": draw(small)}
        axes |= {f"pad_{axis}": draw(st.integers(0, 2)), f"dilation_{axis}": draw(st.integers(1, 2))}
    try:
        return GroupedConvProblem(
            direction=draw(st.sampled_from(DIRECTIONS)),
            dtype=draw(st.sampled_from(DTYPES)),
            ndim=ndim,
            N=draw(st.integers(1, 2)),
            C=groups * draw(small),
            K=groups * draw(small),
            G=groups,
            **axes,
        )
    except ProblemError:
        return draw(problems())


def products(p: GroupedConvProblem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Indices (into x, w, y) of every product of the convolution, one at a time."""
    for n, g in itertools.product(range(p.N), range(p.G)):
        for out in itertools.product(*(range(e) for e in p.output_spatial)):
            for tap in itertools.product(*(range(e) for e in p.filter)):
                at = [
                    o * s + t * d - q
                    for o, s, t, d, q in zip(out, p.stride, tap, p.dilation, p.pad, strict=True)
                ]
                if any(not 0 <= a < e for a, e in zip(at, p.input_spatial, strict=True)):
                    continue
                for k, c in itertools.product(range(p.K // p.G), range(p.C // p.G)):
                    yield (n, *at, g, c), (g, k, *tap, c), (n, *out, g, k)


def by_definition(
    p: GroupedConvProblem, first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    result = np.zeros(p.operand_shapes[2], np.int64)
    for x, w, y in products(p):
        a, b, out = {"forward": (x, w, y), "bwd_data": (y, w, x), "bwd_weight": (x, y, w)}[p.direction]
        result[out] += int(first[a]) * int(second[b])
    return result


@settings(max_examples=60)
@given(problem=problems(), seed=st.integers(0, 2**32))
def test_the_exact_output_follows_the_definition(problem: GroupedConvProblem, seed: int) -> None:
    first, second = integer_operands(problem, seed)
    wanted = by_definition(problem, first, second)
    whole = exact_output(problem, first, second)
    assert whole.shape == wanted.shape
    np.testing.assert_array_equal(whole, wanted)


# ---- number formats -----------------------------------------------------------------------------------

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def nearest_bf16(value: float) -> int:
    """Round to nearest even by exact fractions over the neighbours; independent of bit tricks."""
    bits = int(np.float32(abs(value)).view(np.uint32))
    low, high = bits >> 16, (bits >> 16) + 1

    def exact(pattern: int) -> Fraction:
        # The step above the largest finite number is the next power of two, as in IEEE 754 rounding.
        if pattern == 0x7F80:
            return Fraction(2) ** 128
        return Fraction(float(np.uint32(pattern << 16).view(np.float32)))

    distance_low, distance_high = Fraction(abs(value)) - exact(low), exact(high) - Fraction(abs(value))
    if distance_low != distance_high:
        chosen = low if distance_low < distance_high else high
    else:
        chosen = low if low % 2 == 0 else high
    return chosen | (0x8000 if math.copysign(1, value) < 0 else 0)


@settings(max_examples=300)
@given(value=finite)
def test_bf16_is_rounded_to_nearest_even(value: float) -> None:
    assert int(encode(np.array([value], np.float32), "bf16")[0]) == nearest_bf16(value)


@settings(max_examples=100)
@given(exponent=st.integers(-100, 100), mantissa=st.integers(0, 127), sign=st.sampled_from([-1.0, 1.0]))
def test_ties_between_two_bf16_go_to_even(exponent: int, mantissa: int, sign: float) -> None:
    value = sign * math.ldexp(1 + mantissa / 128 + 1 / 256, exponent)
    stored = int(encode(np.array([value], np.float32), "bf16")[0])
    assert stored == nearest_bf16(value)
    assert stored % 2 == 0


@settings(max_examples=200)
@given(value=finite)
def test_fp16_is_numpys_and_fp32_is_itself(value: float) -> None:
    array = np.array([value], np.float32)
    with np.errstate(over="ignore"):
        assert encode(array, "fp16").tobytes() == array.astype(np.float16).tobytes()
    assert encode(array, "fp32").tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_stored_values_round_trip(dtype: str) -> None:
    """Every finite 16-bit pattern (of fp32: some)."""
    storage = STORAGE[dtype]
    patterns = np.arange(2**16, dtype=np.uint16)
    stored = (
        patterns.view(storage) if storage.itemsize == 2 else (patterns.astype(np.uint32) << 16).view(storage)
    )
    values = decode(stored, dtype)
    finite_ones = np.isfinite(values)
    assert finite_ones.sum() > 60_000
    assert encode(values[finite_ones], dtype).tobytes() == stored[finite_ones].tobytes()


# Unwritten values and NaN in stored arrays.


# e2m1 has no NaN, and is of operands alone.
@pytest.mark.parametrize("dtype", sorted(STORAGE.keys() - {"fp4_e2m1"}))
def test_nan_is_counted_in_every_type(dtype: str) -> None:
    stored = encode(np.array([1.0, np.nan, -np.nan, 448.0], np.float32), dtype)
    assert nan_count(stored, dtype) == 2
