"""Attention: its bounds accept what kernels compute and refuse faults, and a session measures it on cpu."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.operations import check_data
from tile_oracle.device.bounded_rows import outside
from tile_oracle.errors import KernelError, ProblemError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.attention.on_device import WORKER
from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.problem import problem_from_id
from tile_oracle.problem.number_formats import Array, decode, encode

STEP = 32


def in_steps(
    p: AttentionProblem,
    operands: list[Array],
    *,
    weights_in: str = "",
    scores_in: str = "fp32",
    scale: float = 1.0,
    keys: int = 0,
    later: int = 0,
    wrong_head: bool = False,
) -> Array:
    """Attention in fp32 as kernels compute it: STEP keys at a time, weights rounded to 16 bits."""
    q, k, v = (decode(one, p.dtype) for one in operands)
    group = 1 if wrong_head else p.group
    out = np.empty(p.operand_shapes[-1], np.float32)
    row = np.arange(p.seq_q)[:, None] + p.seq_kv - p.seq_q + later
    for b, h in np.ndindex(p.batch, p.heads):
        of_kv = h // group % p.kv_heads
        most = np.full((p.seq_q, 1), -np.inf, np.float32)
        total, sums = np.zeros_like(most), np.zeros(q[b, h].shape, np.float32)
        for at in range(0, p.seq_kv - keys, STEP):
            place = slice(at, min(at + STEP, p.seq_kv - keys))
            scores = q[b, h] @ k[b, of_kv, place].T * np.float32(p.head_dim**-0.5 * scale)
            scores = decode(encode(scores, scores_in), scores_in)
            seen = np.arange(p.seq_kv)[None, place] <= row if p.causal else True
            scores = np.where(seen, scores, np.float32(-np.inf))
            higher = np.maximum(most, scores.max(axis=1, keepdims=True))
            terms, shrink = np.exp(scores - higher), np.exp(most - higher)
            total = total * shrink + terms.sum(axis=1, keepdims=True)
            rounded = decode(encode(terms, weights_in or p.dtype), weights_in or p.dtype)
            sums = sums * shrink + rounded @ v[b, of_kv, place]
            most = higher
        out[b, h] = sums / total
    assert out.dtype == np.float32
    return encode(out, p.dtype)


def made(p: AttentionProblem, *, far: bool) -> tuple[list[Array], Array, Array]:
    (first, *others), low, high = check_data.made(WORKER, p, p.batch * p.heads * p.seq_q, far=far)
    return [first.reshape(p.operand_shapes[0]), *others], low, high


PROBLEMS = (
    AttentionProblem("bf16", 2, 4, 2, 70, 200, 64, 1),
    AttentionProblem("fp16", 1, 4, 2, 5, 300, 128, 0),
)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("weights", ["", "fp32"])
def test_what_kernels_compute_is_right(problem: AttentionProblem, far: bool, weights: str) -> None:
    operands, low, high = made(problem, far=far)
    assert outside(in_steps(problem, operands, weights_in=weights), low, high, problem.dtype) is None


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
@pytest.mark.parametrize("number", [0, 1, 2], ids=["query", "key", "value"])
@pytest.mark.parametrize("instead", [0.0, 1.0])
def test_a_nan_that_is_dropped_is_wrong(problem: AttentionProblem, number: int, instead: float) -> None:
    operands, low, high = made(problem, far=True)
    nan = np.isnan(decode(operands[number], problem.dtype))
    assert nan.any()
    operands[number] = np.where(nan, encode(np.full(1, instead), problem.dtype), operands[number])
    assert "values wrong" in (outside(in_steps(problem, operands), low, high, problem.dtype) or "")


def test_a_nan_in_a_key_that_a_query_does_not_see_does_not_reach_it() -> None:
    """A mask that is added instead of chosen spreads it."""
    problem = PROBLEMS[0]
    operands, low, high = made(problem, far=True)
    got = in_steps(problem, operands).reshape(low.shape)
    assert np.isnan(decode(got, "bf16")).any()
    assert not np.isnan(decode(got, "bf16")).all(axis=0).any()
    spread = got.reshape(problem.operand_shapes[0]).copy()
    spread[0, :2] = encode(np.full(1, np.nan), "bf16")
    assert "values wrong" in (outside(spread.reshape(low.shape), low, high, "bf16") or "")


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
@pytest.mark.parametrize(
    "fault",
    [
        lambda x: np.where(np.abs(x) < 0.01, 0, x),
        lambda x: np.clip(x, -30, 30),
        lambda x: np.round(x * 16) / 16,
    ],
    ids=["small flushed", "large clamped", "sixteenths"],
)
def test_values_of_many_sizes_are_kept(problem: AttentionProblem, fault: Callable[[Array], Array]) -> None:
    operands, low, high = made(problem, far=True)
    for number in range(3):
        changed = list(operands)
        kept = decode(operands[number], problem.dtype)
        changed[number] = encode(fault(kept).astype(np.float32), problem.dtype)
        assert "values wrong" in (outside(in_steps(problem, changed), low, high, problem.dtype) or "")


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
@pytest.mark.parametrize(
    "fault",
    [{"scale": 1.02}, {"keys": 1}, {"scores_in": "bf16"}, {"wrong_head": True}, {"weights_in": "fp8"}],
    ids=str,
)
def test_faults_are_wrong(problem: AttentionProblem, fault: dict[str, object]) -> None:
    operands, low, high = made(problem, far=True)
    got = in_steps(problem, operands, **fault)  # type: ignore[arg-type]
    assert "values wrong" in (outside(got, low, high, problem.dtype) or "")


def test_a_causal_mask_that_is_one_key_late_is_wrong() -> None:
    operands, low, high = made(PROBLEMS[0], far=False)
    got = in_steps(PROBLEMS[0], operands, later=1)
    assert "values wrong" in (outside(got, low, high, "bf16") or "")


def test_heads_repeat_with_the_rows() -> None:
    problem = AttentionProblem("bf16", 2, 6, 3, 4, 10, 64)
    period = WORKER.period(problem)
    assert period == 5 * problem.group * problem.seq_q
    k = WORKER.others(problem, np.random.default_rng(1), period, far=True)[0].whole().reshape(6, 10, 64)
    assert (k[5] == k[0]).all()
    assert not any((k[number] == k[0]).all() for number in range(1, 5))


def test_impossible_names_and_ids_say_why() -> None:
    with pytest.raises(KernelError, match="no attention kernel with keys 33"):
        parse_kernel_name("attention_bf16_d128_causal1_keys33")
    with pytest.raises(ProblemError, match="heads = 8 is no multiple of kv_heads = 3"):
        problem_from_id("attention-bf16-b1-h8-g3-q1-k1-d64")
    with pytest.raises(ProblemError, match="causal needs seq_q = 5 to be at most seq_kv = 4"):
        problem_from_id("attention-bf16-b1-h8-g8-q5-k4-d64-causal")


def test_flops_count_visible_keys() -> None:
    problem = AttentionProblem("bf16", 2, 4, 2, 3, 5, 64, 1)
    assert problem.visible == 3 + 4 + 5
    assert problem.flops == 4 * 2 * 4 * 12 * 64
    assert problem.bytes == 2 * 64 * (2 * 2 * 4 * 3 + 2 * 2 * 2 * 5)
