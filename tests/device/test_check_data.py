"""Operands of checks: exact in any order of summation, full mantissas, cancelling sums, negated columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.device.check_data import (
    MANTISSA_BITS,
    Columns,
    Pattern,
    column_count,
    columns_of_result,
    columns_of_second,
    countable,
    dense,
    mantissa,
    negated,
    operands,
)
from tile_oracle.device.product_check import product_check
from tile_oracle.device.reference import exact_output, exact_values
from tile_oracle.number_formats import decode, encode
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS, GemmProblem
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem import Problem

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


def patterns(problem: Problem) -> tuple[Pattern, ...]:
    return (dense(problem), *mantissa(problem), countable(problem))


def column_of(columns: Columns, count: int) -> npt.NDArray[np.int64]:
    at = np.arange(count)
    return at // (columns.inner * columns.depth) * columns.inner + at % columns.inner


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_sums_are_exact_in_fp32_and_operands_in_their_dtype(problem: Problem) -> None:
    for pattern in patterns(problem):
        first, second = operands(problem, pattern, 3)
        for operand in (first, second):
            stored = decode(encode(operand * np.float32(pattern.scale), problem.dtype), problem.dtype)
            assert (stored == operand * pattern.scale).all(), pattern.name
        whole = exact_output(problem, first, second).astype(np.int64).ravel()
        points = np.arange(whole.size)
        assert (whole == exact_values(problem, first, second, points)).all(), pattern.name
        magnitudes = exact_values(problem, np.abs(first), np.abs(second), points)
        # No partial sum exceeds the sum of all magnitudes, and most are far smaller.
        assert magnitudes.max() < 2**24 * 12, pattern.name


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_every_bit_of_a_mantissa_is_used(problem: Problem) -> None:
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


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_even_columns_hold_one_element(problem: Problem) -> None:
    columns, count = columns_of_second(problem), column_count(problem)
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


@settings(max_examples=25, deadline=None)
@given(problem=st.sampled_from(PROBLEMS), seed=st.integers(0, 2**32))
def test_negated_columns_negate_the_result(problem: Problem, seed: int) -> None:
    first, second = operands(problem, dense(problem), seed)
    chosen = negated(column_count(problem), seed)
    assert chosen.any()
    signs = np.where(chosen, -1, 1)
    of_second = signs[column_of(columns_of_second(problem), second.size)].reshape(second.shape)
    result = exact_output(problem, first, second).ravel()
    of_result = signs[column_of(columns_of_result(problem), result.size)]
    changed = exact_output(problem, first, (second * of_second).astype(np.int32)).ravel()
    assert (changed == result * of_result).all()


# ---- products ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(problem=st.sampled_from(PROBLEMS), seed=st.integers(0, 2**32), data=st.data())
def test_products_detect_one_wrong_value(problem: Problem, seed: int, data: st.DataObject) -> None:
    first, second = operands(problem, countable(problem), seed)
    check = product_check(problem, first, second, seed)
    exact = exact_output(problem, first, second)
    right = encode(exact, problem.result_dtype).ravel()
    assert check.count == exact.size
    assert check.wrong_row(right) is None
    at = data.draw(st.integers(0, exact.size - 1))
    wrong = exact.ravel().copy()
    wrong[at] += data.draw(st.sampled_from([-1, 1, 3]))
    found = check.wrong_row(encode(wrong, problem.result_dtype))
    assert found is not None
    # The message names the first value of the wrong row.
    row = np.unravel_index(found, problem.operand_shapes[2])
    place = np.unravel_index(at, problem.operand_shapes[2])
    same = [one == other for one, other in zip(row, place, strict=True)]
    axis = 1 if isinstance(problem, GroupedConvProblem) and problem.direction == "bwd_weight" else -1
    if axis == 1:
        assert all(same[:1] + same[2:])
    else:
        assert all(same[: 1 if isinstance(problem, GemmProblem) else len(same) - 2])


def test_one_wrong_tile_of_a_large_result_is_detected_every_time() -> None:
    """2,048 points would miss a 64 x 64 tile of 4,096 x 4,096 with a probability of 0.6."""
    problem = GemmProblem("bf16", "rcr", 512, 512, 64)
    first, second = operands(problem, countable(problem), 1)
    exact = exact_output(problem, first, second)
    check = product_check(problem, first, second, 1)
    for number in range(40):
        wrong = exact.copy()
        row, column = divmod(number * 997 % 64, 8)
        wrong[64 * row : 64 * row + 64, 64 * column : 64 * column + 64] = 0
        assert check.wrong_row(encode(wrong, "bf16").ravel()) is not None


def test_nan_and_unwritten_values_are_wrong_products() -> None:
    problem = GemmProblem("fp32", "rrr", 9, 11, 8)
    first, second = operands(problem, countable(problem), 1)
    out = encode(exact_output(problem, first, second), "fp32").ravel()
    check = product_check(problem, first, second, 1)
    out[57] = np.nan
    assert check.wrong_row(out) == 55
