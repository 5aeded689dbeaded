"""Fused products: the check accepts right epilogues in fp32 and no wrong one; sessions measure them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, expit

from tests.operations.check_data import made
from tests.samples import sampled
from tile_oracle.device.bounded_rows import outside
from tile_oracle.errors import ProblemError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operation import operation_of_columns
from tile_oracle.operations.fused_gemm import on_device, problem
from tile_oracle.operations.fused_gemm.on_device import WORKER
from tile_oracle.operations.fused_gemm.problem import DTYPES, EPILOGUES, Epilogue, FusedGemmProblem
from tile_oracle.operations.gemm.problem import GEMM_LAYOUTS
from tile_oracle.problem import problem_from_id
from tile_oracle.problem.number_formats import Array, decode, encode

F = np.float32


def gelu(x: Array) -> Array:
    return F(0.5) * x * (F(1) + erf(x * F(np.sqrt(0.5))))


def gelu_tanh(x: Array) -> Array:
    s = F(np.sqrt(2 / np.pi)) * (x + F(0.044715) * x * x * x)
    return F(0.5) * x * (F(1) + np.tanh(s))


def silu(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x / (F(1) + np.exp(-x))


def gelu_by_exponential(x: Array) -> Array:
    s = F(2 * np.sqrt(2 / np.pi)) * x * (F(1) + F(0.044715) * x * x)
    return x * expit(s)


def gelu_by_instruction(x: Array) -> Array:
    """With a tanh whose relative error is 2^-11 here, 2^-11 there."""
    s = F(np.sqrt(2 / np.pi)) * (x + F(0.044715) * x * x * x)
    error = F(2.0**-11) * np.sign(np.sin(1000 * x)).astype(F)
    return F(0.5) * x * (F(1) + np.clip(np.tanh(s) * (F(1) + error), -1, 1))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    **{"": lambda x: x, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
}


def operands_of(p: FusedGemmProblem, *, far: bool) -> tuple[Array, Array, Array | None, Array | None, Any]:
    """A by rows, B as (batch, K, N), the bias and D in fp32, and a function that says what is wrong with a
    result."""
    operands, low, high = made(WORKER, p, p.batch * p.M, far=far)
    a, b, *added = (decode(one, p.dtype) for one in operands)
    b = b if p.layout[1] == "r" else b.swapaxes(1, 2)
    bias = added.pop(0) if p.parts.bias else None
    d = added.pop(0) if p.parts.last else None

    def wrong(result: Array) -> str | None:
        return outside(encode(result.reshape(-1, p.N), p.dtype), low, high, p.dtype)

    return a.reshape(p.batch, p.M, p.K), b, bias, d, wrong


PRECISION = ("A in 7 bits", "sums rounded to the data type")


def computed(
    p: FusedGemmProblem, a: Array, b: Array, bias: Array | None, d: Array | None, fault: str = ""
) -> Array:
    """The product as a kernel computes it in fp32."""
    activation = ACTIVATIONS[p.parts.activation]
    if fault == "the next product's B":
        b = np.roll(b, 1, axis=0)
    if fault == "a depth too few":
        a, b = a[..., :-1], b[:, :-1]
    if fault == "A in 7 bits":
        significand, power = np.frexp(a)
        a = np.ldexp(np.trunc(significand * 128) / F(128), power)
    x = (a.astype(F) @ b.astype(F)).astype(F)
    if fault == "sums rounded to the data type":
        x = decode(encode(x, p.dtype), p.dtype)
    if bias is not None and fault not in ("no bias", "the bias after the activation"):
        x = x + (np.roll(bias, 1, axis=1) if fault == "the neighbour's bias" else bias)[:, None, :]
    if d is not None and fault == "D before the activation":
        return activation(x * d if p.parts.last == "mul" else x + d)
    if d is not None and fault == "gate and up swapped":
        return x * activation(d)
    if fault == "the other form of GELU":
        activation = gelu_tanh if activation is gelu else gelu
    if fault == "SiLU for GELU":
        activation = silu
    x = activation(x)
    if bias is not None and fault == "the bias after the activation":
        x = x + bias[:, None, :]
    if d is not None and fault != "no D":
        x = x * d if p.parts.last == "mul" else x + d
    return x


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues_in_fp32_are_right(epilogue: str, far: bool) -> None:
    for dtype in DTYPES:
        for layout in GEMM_LAYOUTS:
            for shape in ((9, 40, 300, 3), (65, 70, 64, 1), (5, 3, 1, 2)):
                p = FusedGemmProblem(dtype, layout, epilogue, *shape)
                *operands, wrong = operands_of(p, far=far)
                assert wrong(computed(p, *operands)) is None, p.id


@pytest.mark.parametrize("form", [gelu_by_exponential, gelu_by_instruction])
def test_other_ways_to_compute_gelu_with_tanh_are_right(
    form: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ACTIVATIONS, "gelu_tanh", form)
    for far in (False, True):
        p = FusedGemmProblem("fp16", "rcr", "bias_gelu_tanh", 130, 200, 64)
        *operands, wrong = operands_of(p, far=far)
        assert wrong(computed(p, *operands)) is None


@given(x=st.floats(-80, 80, width=32))
@settings(max_examples=300)
def test_the_errors_of_activations_are_within_their_bound(x: float) -> None:
    """Of straightforward fp32, with a factor of 2 to spare."""
    value = np.array([x], F)
    for name, function in ACTIVATIONS.items():
        found = function(value).astype(np.float64)
        right, error = on_device.activated(value.astype(np.float64), name)
        assert abs(found - right)[0] <= (error / 2 if name else error)[0] + 1e-45


@pytest.mark.parametrize(
    ("epilogue", "fault"),
    [
        ("none", "the next product's B"),
        ("none", "a depth too few"),
        ("none", "A in 7 bits"),
        ("bias", "no bias"),
        ("bias", "the neighbour's bias"),
        ("bias", "sums rounded to the data type"),
        ("bias_gelu", "no bias"),
        ("bias_gelu", "the bias after the activation"),
        ("bias_gelu", "the other form of GELU"),
        ("bias_gelu", "sums rounded to the data type"),
        ("bias_gelu_tanh", "SiLU for GELU"),
        ("bias_gelu_tanh", "the bias after the activation"),
        ("bias_gelu_tanh", "a depth too few"),
        ("silu_mul", "gate and up swapped"),
        ("silu_mul", "D before the activation"),
        ("silu_mul", "no D"),
        ("gelu_tanh_mul", "D before the activation"),
        ("gelu_tanh_mul", "gate and up swapped"),
        ("residual", "no D"),
        ("residual", "sums rounded to the data type"),
        ("bias_residual", "no bias"),
    ],
)
@pytest.mark.parametrize("dtype", sampled(DTYPES, every=2))
def test_faults_are_wrong(dtype: str, epilogue: str, fault: str) -> None:
    """Those of precision in the first set, whose numbers have all bits; the others in both."""
    for far in (False,) if fault in PRECISION else (False, True):
        p = FusedGemmProblem(dtype, "rcr", epilogue, 33, 140, 512, 2)
        *operands, wrong = operands_of(p, far=far)
        assert "values wrong" in str(wrong(computed(p, *operands, fault=fault))), f"far: {far}"


def test_a_residual_before_the_activation_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """No epilogue of the list has both; the check of one that has tells the orders apart."""
    monkeypatch.setattr(problem, "EPILOGUES", {"gelu_residual": Epilogue(False, "gelu", "residual")})
    p = FusedGemmProblem("bf16", "rcr", "gelu_residual", 33, 140, 512)
    for far in (False, True):
        *operands, wrong = operands_of(p, far=far)
        assert wrong(computed(p, *operands)) is None
        assert "values wrong" in str(wrong(computed(p, *operands, fault="D before the activation")))


def test_operands_are_normal_and_sums_fit_fp32_in_any_order() -> None:
    for dtype in DTYPES:
        for depth in (1, 2, 4096, 65_536):
            p = FusedGemmProblem(dtype, "rcr", "bias", 2, 3, depth)
            for far in (False, True):
                a, b, bias, _, _ = operands_of(p, far=far)
                for values in (a, b):
                    assert np.abs(values[values != 0]).min() >= 2.0**-14
                terms = np.append(bias[0, 0], a[0, 0] * b[0, :, 0])
                for order in (np.arange(depth + 1), np.argsort(terms)):
                    if far or order[0] == 0:
                        exact = np.cumsum(terms[order].astype(np.float64))
                        assert (np.cumsum(terms[order], dtype=F) == exact).all()


@pytest.mark.parametrize(("most", "period"), [(1 << 33, 160), (1 << 20, 60), (1 << 17, 13)])
@pytest.mark.parametrize("layout", ["rcr", "rrr"])
def test_results_of_large_problems_repeat(
    layout: str, most: int, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all rows, after whole products, or after rows of equal products."""
    monkeypatch.setattr(on_device, "_MOST_PRODUCTS", most)
    monkeypatch.setattr(on_device, "_BATCHES", (3, 2))
    p = FusedGemmProblem("bf16", layout, "bias_residual", 20, 90, 100, 8)
    assert WORKER.period(p) == period
    random = np.random.default_rng(1)
    first = WORKER.first(p, random, period, far=True)
    others = WORKER.others(p, random, period, far=True)
    every = np.arange(160)
    low, _ = WORKER.bounds(p, first[every % period], others, every)
    part, _ = WORKER.bounds(p, first, others, np.arange(period))
    assert (low == part[every % period]).all()
    products = np.unique(others[0].whole().reshape(8, -1), axis=0)
    assert len(products) == {160: 8, 60: 3, 13: 1}[period]


def test_tables_names_and_ids_are_told_apart() -> None:
    kernel = parse_kernel_name("fused_gemm_bf16_rcr_bias_gelu_tanh_columns4")
    assert kernel.as_row()["epilogue"] == "bias_gelu_tanh"
    for columns in (("batch", "M", "N", "K"), ("layout", "epilogue", "M", "N", "K", "batch")):
        assert operation_of_columns(columns).name == "fused_gemm"
    for columns in (("M", "N", "K"), ("layout", "M", "N", "K"), ("layout", "epilogue", "M", "N", "K")):
        assert operation_of_columns(columns).name == "gemm"
    with pytest.raises(ProblemError, match="epilogue 'relu' is not one of none, bias, "):
        problem_from_id("fused_gemm-bf16-rcr-relu-m1-n1-k6")
    with pytest.raises(ProblemError, match="did you mean 'fused_gemm-bf16-rcr-bias-m1-n1-k6'"):
        problem_from_id("fused_gemm-bf16-rcr-bias-m1-n1-k6-b1")


def test_shapes_and_bytes_count_bias_and_d() -> None:
    p = FusedGemmProblem("fp16", "crr", "bias_residual", 5, 20, 30, 3)
    assert p.operand_shapes == ((3, 30, 5), (3, 30, 20), (3, 20), (3, 5, 20), (3, 5, 20))
    assert p.bytes == 2 * 3 * (150 + 600 + 20 + 100 + 100)
    assert p.flops == 2 * 3 * 5 * 20 * 30
