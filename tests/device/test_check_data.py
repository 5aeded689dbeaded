"""Operands of checks: exact in any order of summation, full mantissas, cancelling sums, negated columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integer_operands import integer_operands
from tile_oracle.device.check_data import (
    MANTISSA_BITS,
    Columns,
    Pattern,
    columns_of_second,
    dense,
    mantissa,
    operands,
)
from tile_oracle.device.factors import Exponents, exponents, factor_axes
from tile_oracle.device.reference import exact_output
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import decode, encode

_REST = (
    "bf16-n2-g3-c9-k21-i6x5-f3x2-s2x1-p1x0-d1x2",
    "fp16-n1-c5-k3-i4x3x5-f2x1x3-p1x0x1",
    "fp32-n4-c8-k4-i7x5-f3x3-p1",
    "bf16-n2-g4-c4-k4-i7x5-f3x3-p1",
)
PROBLEMS: tuple[Problem, ...] = (
    *(GroupedConvProblem.from_id(f"{direction}-{rest}") for direction in DIRECTIONS for rest in _REST),
    *(GemmProblem(dtype, layout, 5, 7, 90) for dtype in ("bf16", "fp32") for layout in GEMM_LAYOUTS),
    GemmProblem("fp8", "rcr", 5, 7, 90),
    GemmProblem("fp16", "rcr", 16, 16, 5000),
)


SMALLEST_NORMAL = {"bf16": 2.0**-126, "fp32": 2.0**-126, "fp16": 2.0**-14, "fp8": 2.0**-6}


def patterns(problem: Problem) -> tuple[Pattern, ...]:
    return (dense(problem), *mantissa(problem))


def column_of(columns: Columns, count: int) -> npt.NDArray[np.int64]:
    at = np.arange(count)
    return at // (columns.inner * columns.depth) * columns.inner + at % columns.inner


def in_other_order(problem: Problem, first: npt.NDArray[np.int32], second: npt.NDArray[np.int32]) -> Any:
    """The results as fp32 sums of two parts, each of every other depth."""
    axes = factor_axes(problem)
    halves = np.arange(axes.first.sizes[1]) % 2
    total = np.float32(0)
    for half in (1, 0):
        mask = axes.first.spread(np.ones(axes.first.sizes[0], np.int32), (halves == half).astype(np.int32))[1]
        part = (first.reshape(axes.first.extents) * mask).reshape(first.shape)
        total = total + exact_output(problem, part, second)
    return total.ravel()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_operands_and_results_are_exact_and_in_the_range_of_their_dtype(problem: Problem) -> None:
    for pattern in patterns(problem):
        first, second = operands(problem, pattern, 3)
        for operand in (first, second):
            stored = decode(encode(operand * np.float32(pattern.scale), problem.dtype), problem.dtype)
            assert (stored == operand * pattern.scale).all(), pattern.name
        whole = exact_output(problem, first, second).astype(np.int64).ravel()
        assert (whole == in_other_order(problem, first, second)).all(), pattern.name
        # No partial sum exceeds the sum of all magnitudes, and most are far smaller.
        assert exact_output(problem, np.abs(first), np.abs(second)).max() < 2**24 * 12, pattern.name
    axes = factor_axes(problem)
    powers = exponents(axes, problem.dtype, 3)
    least, most = np.inf, 0.0
    for pattern in patterns(problem):
        values = operands(problem, pattern, 3)
        for number, operand in enumerate(values):
            exact = powers.scaled(axes, number, operand * np.float32(pattern.scale))
            stored = decode(encode(exact, problem.dtype), problem.dtype)
            assert (stored == exact).all(), "nothing is lost"
            sizes = np.abs(stored[stored != 0])
            assert sizes.min() >= SMALLEST_NORMAL[problem.dtype]
            least, most = min(least, sizes.min()), max(most, sizes.max())
        result = powers.scaled(axes, 2, exact_output(problem, *values) * np.float32(pattern.result_scale))
        rounded = decode(encode(result, problem.result_dtype), problem.result_dtype)
        assert np.isfinite(rounded).all()
        assert np.abs(rounded[rounded != 0]).min(initial=1.0) >= SMALLEST_NORMAL[problem.result_dtype]
    assert most / least >= {"bf16": 2**60, "fp32": 2**60, "fp16": 2**20, "fp8": 2**7}[problem.dtype]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_every_bit_of_a_mantissa_is_used_and_even_columns_hold_one_element(problem: Problem) -> None:
    bits = MANTISSA_BITS[problem.dtype]
    lengths = np.zeros(2, np.int64)
    for pattern in mantissa(problem):
        values = operands(problem, pattern, 3)
        for number, operand in enumerate(values):
            magnitudes = np.abs(operand)
            lengths[number] = max(lengths[number], int(magnitudes.max()).bit_length())
            if int(magnitudes.max()).bit_length() == bits:
                assert (magnitudes % 2 == 1).any(), "the last bit is set somewhere"
    assert (lengths >= bits).all()
    columns, count = columns_of_second(problem), factor_axes(problem).second.sizes[0]
    for pattern in mantissa(problem):
        _, second = operands(problem, pattern, 3)
        column = column_of(columns, second.size)
        filled = np.bincount(column[second.ravel() != 0], minlength=count)
        chosen = filled if pattern.every_column else filled[::2]
        assert (chosen == 1).all()


def test_sums_cancel_to_a_small_result() -> None:
    problem = GemmProblem("bf16", "rcr", 32, 32, 512)
    (pattern,) = mantissa(problem)
    first, second = operands(problem, pattern, 3)
    odd = np.arange(1, 32, 2)
    whole = np.abs(exact_output(problem, first, second)[:, odd]).mean()
    half = GemmProblem("bf16", "rcr", 32, 32, 256)
    parts = np.abs(exact_output(half, first[:, :256], second[:, :256])[:, odd]).mean()
    assert parts > 50 * whole > 0


@given(problem=st.sampled_from(PROBLEMS), seed=st.integers(0, 2**32))
def test_factors_of_operands_give_those_of_the_result(problem: Problem, seed: int) -> None:
    """Exponents of -1, 0 and 1, so that fp32 holds all sums, and signs."""
    axes, random = factor_axes(problem), np.random.default_rng(seed)
    (rows, depths), (columns, _) = axes.first.sizes, axes.second.sizes
    assert axes.second.sizes[1] == depths
    assert axes.result.sizes == (rows, columns)
    powers = Exponents(*(random.integers(-1, 2, size, dtype=np.int32) for size in (rows, columns, depths)))
    signs = [random.integers(0, 2, size) * 2 - 1 for size in (rows, columns, depths)]
    pairs = ((signs[0], signs[2]), (signs[1], signs[2]), (signs[0], signs[1]))

    def changed(number: int, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        one, other = axes[number].spread(*pairs[number])
        return (powers.scaled(axes, number, values).reshape(axes[number].extents) * one * other).reshape(
            values.shape
        )

    first, second = (values.astype(np.float32) for values in integer_operands(problem, seed))
    result = exact_output(problem, first, second)  # type: ignore[arg-type]
    got = exact_output(problem, changed(0, first), changed(1, second))  # type: ignore[arg-type]
    assert (got == changed(2, result)).all()
