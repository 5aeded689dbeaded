"""Infinities and NaN among the operands of sums of products: what must come of them is defined."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.device.test_check_data import PROBLEMS
from tile_oracle.device.check_data import operands
from tile_oracle.device.not_finite import not_finite, spoilt
from tile_oracle.device.reference import exact_output
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem import Problem
from tile_oracle.problem.number_formats import decode, encode

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
