"""Operands of checks: exact in any order of summation, full mantissas, cancelling sums, negated columns."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
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
from tile_oracle.device.not_finite import not_finite, spoilt
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


# Infinities and NaN among the operands of sums of products: what must come of them is defined.

MORE: tuple[Problem, ...] = (
    *(GroupedConvProblem.from_id(f"{one}-bf16-n2-c8-k12-i6x6-f3x3-p1") for one in DIRECTIONS),
    *(GroupedConvProblem.from_id(f"{one}-fp16-n2-c8-k12-i7x9-f3x2-s2x1") for one in DIRECTIONS),
    *(GroupedConvProblem.from_id(f"{one}-fp32-n3-g4-c4-k4-i8x8-f1x1") for one in DIRECTIONS),
    GemmProblem("bf16", "rcr", 40, 30, 20),
    GemmProblem("fp16", "crr", 1, 8, 3),
    GemmProblem("fp8", "rcr", 64, 1, 5),
)


def with_spoilt(problem: Problem, seed: int) -> list[npt.NDArray[np.float32]]:
    made = [one.astype(np.float32) for one in operands(problem, not_finite(problem), seed)]
    for number, values in enumerate(made):
        assert values.all(), "no product has a zero"
        chosen = spoilt(problem, number, seed)
        assert len(set(chosen.places.tolist())) == len(chosen.values)
        values.reshape(-1)[chosen.places] = chosen.values
    return made


@settings(max_examples=120)
@given(problem=st.sampled_from((*PROBLEMS, *MORE)), seed=st.integers(0, 2**32))
def test_exactly_the_sums_that_depend_on_them_are_not_finite(problem: Problem, seed: int) -> None:
    first, second = with_spoilt(problem, seed)
    with np.errstate(invalid="ignore"):
        # The whole output is made of products with zeros for padding, which reach no sum by the definition.
        result = exact_output(problem, first, second)
    reached = exact_output(problem, ~np.isfinite(first) * 1, np.ones(second.shape, int))
    reached += exact_output(problem, np.ones(first.shape, int), ~np.isfinite(second) * 1)
    assert np.array_equal(~np.isfinite(result), reached > 0)
    for operand in (first, second):
        stored = decode(encode(operand, problem.dtype), problem.dtype)
        assert np.array_equal(np.isinf(operand), np.isinf(stored))
        assert np.array_equal(np.isnan(operand), np.isnan(stored))


def test_infinities_of_both_signs_meet() -> None:
    problem = GemmProblem("bf16", "rcr", 200, 100, 50)
    first, second = with_spoilt(problem, 3)
    with np.errstate(invalid="ignore"):
        result = exact_output(problem, first, second)
    no_nan = ~np.isnan(first).any(axis=1)[:, None] & ~np.isnan(second).any(axis=1)
    assert np.isnan(result[no_nan]).any()
    assert (result == np.inf).any()
    assert (result == -np.inf).any()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_groups_may_be_merged_with_zeros_between_them(direction: str) -> None:
    """As kernels do to fill a matrix instruction: a product of all channels with a block diagonal."""
    problem = GroupedConvProblem.from_id(f"{direction}-bf16-n3-g4-c8-k12-i5x5-f3x3-p1")
    first, second = with_spoilt(problem, 3)
    together = dataclasses.replace(problem, G=1)
    x, w = (
        (one.reshape(shape) for one, shape in zip((first, second), together.operand_shapes, strict=False))
        if direction == "bwd_weight"
        else (first.reshape(together.operand_shapes[0]), np.zeros(together.operand_shapes[1]))
    )
    c, k = problem.C // problem.G, problem.K // problem.G
    if direction != "bwd_weight":
        for g in range(problem.G):
            w[0, g * k : g * k + k, ..., g * c : g * c + c] = second[g]
    with np.errstate(invalid="ignore"):
        wanted = exact_output(problem, first, second)
        merged = exact_output(together, x, w)  # type: ignore[arg-type]
    if direction == "bwd_weight":
        merged = np.stack([merged[0, g * k : g * k + k, ..., g * c : g * c + c] for g in range(problem.G)])
    assert np.array_equal(merged.reshape(wanted.shape), wanted, equal_nan=True)
    assert not np.isfinite(wanted).all()


def test_weights_that_meet_padding_stay_finite() -> None:
    problem = GroupedConvProblem.from_id("forward-bf16-n2-c8-k12-i6x6-f3x3-p1")
    _, second = with_spoilt(problem, 3)
    touched = np.argwhere(~np.isfinite(second))
    assert len(touched)
    assert (touched[:, 2:4] == 1).all(), "only the tap in the middle is always inside"
    bordered = GroupedConvProblem.from_id("forward-bf16-n2-c8-k12-i2x2-f3x3-p2")
    assert not len(spoilt(bordered, 1, 3).places)
