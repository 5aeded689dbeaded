"""Softmax and RMS normalization: their problem sets, and what their checks accept and find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.operations import check_data
from tile_oracle.device.bounded_rows import outside
from tile_oracle.operations.rms_norm import on_device as rms_norm
from tile_oracle.operations.rms_norm.problem import EPSILON, RmsNormProblem
from tile_oracle.operations.rowwise.on_device import Definition, mismatch
from tile_oracle.operations.softmax import on_device as softmax
from tile_oracle.operations.softmax.problem import SoftmaxProblem
from tile_oracle.problem.number_formats import Array, decode, encode

Computed = Callable[[Sequence[Array]], Array]


@np.errstate(invalid="ignore")
def _softmax(operands: Sequence[Array]) -> Array:
    """Some rows hold infinities, whose results are NaN."""
    (x,) = operands
    terms = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=1, keepdims=True))


@np.errstate(invalid="ignore")
def _rms_norm(operands: Sequence[Array]) -> Array:
    """Some rows hold infinities, whose results are NaN."""
    x, w = operands
    mean = (x * x).mean(axis=1, keepdims=True, dtype=np.float32)
    return np.asarray(x / np.sqrt(mean + np.float32(EPSILON)) * w)


CASES = [
    pytest.param(SoftmaxProblem, softmax.definition, _softmax, id="softmax"),
    pytest.param(RmsNormProblem, rms_norm.definition, _rms_norm, id="rms_norm"),
]
Problems = type[SoftmaxProblem] | type[RmsNormProblem]


def _operands(problem: SoftmaxProblem | RmsNormProblem) -> list[Array]:
    random = np.random.default_rng(7)
    drawn = [random.standard_normal(one, dtype=np.float32) * 4 for one in problem.operand_shapes[:-1]]
    return [decode(encode(one, problem.dtype), problem.dtype) for one in drawn]


@pytest.mark.parametrize(("made", "definition", "computed"), CASES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_computation_in_fp32_is_right_and_a_coarser_one_is_not(
    made: Problems, definition: Definition, computed: Computed, dtype: str
) -> None:
    operands = _operands(made(dtype, 17, 3001))
    wanted = definition([one.astype(np.float64) for one in operands])
    right = computed(operands)
    assert right.dtype == np.float32
    assert mismatch(encode(right, dtype), dtype, wanted) is None
    coarse = right * np.float32(1 + 2.0 ** {"bf16": -6, "fp16": -9, "fp32": -14}[dtype])
    assert "values wrong" in (mismatch(encode(coarse, dtype), dtype, wanted) or "")


@pytest.mark.parametrize(("made", "definition", "computed"), CASES)
def test_a_result_that_is_cut_off_instead_of_rounded_is_wrong(
    made: Problems, definition: Definition, computed: Computed
) -> None:
    operands = _operands(made("bf16", 17, 300))
    wanted = definition([one.astype(np.float64) for one in operands])
    cut = (computed(operands).view(np.uint32) >> 16).astype(np.uint16)
    assert "values wrong" in (mismatch(cut, "bf16", wanted) or "")


@pytest.mark.parametrize(("made", "_", "computed"), CASES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(
    "fault", ["none", "dropped", "infinities clamped", "result cleaned", "next row spoilt"]
)
def test_infinities_and_nan_stay_where_they_belong(
    made: Problems, _: Definition, computed: Computed, dtype: str, fault: str
) -> None:
    problem = made(dtype, 40, 300)
    worker = softmax.WORKER if made is SoftmaxProblem else rms_norm.WORKER
    stored, low, high = check_data.made(worker, problem, 40, far=True)
    operands = [decode(one, dtype) for one in stored]
    spoilt = ~np.isfinite(operands[0]).all(axis=1)
    assert spoilt.sum() == 5
    if fault == "dropped":
        operands = [np.where(np.isnan(one), np.float32(0), one) for one in operands]
    elif fault == "infinities clamped":
        operands = [np.clip(one, np.float32(-6e4), np.float32(6e4)) for one in operands]
    result = computed(operands)
    if fault == "result cleaned":
        result = np.nan_to_num(result)
    elif fault == "next row spoilt":
        result[np.flatnonzero(spoilt) + 1] = np.nan
    clamps = fault == "infinities clamped" and made is SoftmaxProblem and dtype == "fp16"
    right = fault == "none" or clamps  # exp(-60,000) is 0, too
    assert (outside(encode(result, dtype), low, high, dtype) is None) == right


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("fault", ["none", "flushed", "clamped", "sixteenths"])
def test_rms_norm_is_checked_with_values_of_many_sizes(dtype: str, fault: str) -> None:
    """A kernel that loses small or large values is wrong in the second set."""
    problem = RmsNormProblem(dtype, 40, 300)
    (first, weights), low, high = check_data.made(rms_norm.WORKER, problem, 40, far=True)
    x = decode(first, dtype)
    if fault == "flushed":
        x = np.where(np.abs(x) < (0.3 if dtype == "fp16" else 1e-3), np.float32(0), x)
    elif fault == "clamped":
        x = np.clip(x, *((-1e4, 1e4) if dtype == "fp16" else (-1e5, 1e5))).astype(np.float32)
    elif fault == "sixteenths":
        x = np.round(x * 16) / np.float32(16)
    result = encode(_rms_norm([x, decode(weights, dtype)]), dtype)
    assert (outside(result, low, high, dtype) is None) == (fault == "none")
