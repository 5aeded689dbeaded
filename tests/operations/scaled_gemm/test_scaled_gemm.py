"""Scaled products: their check accepts exact sums alone, and sessions measure them and train on them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.operations.check_data import in_registers, made
from tile_oracle.device.bounded_rows import outside
from tile_oracle.errors import ProblemError
from tile_oracle.operation import operation_of_columns
from tile_oracle.operations.scaled_gemm.on_device import WORKER
from tile_oracle.operations.scaled_gemm.problem import BLOCK, ScaledGemmProblem
from tile_oracle.problem import problem_from_id
from tile_oracle.problem.number_formats import Array, decode, encode

WHOLE = 1 << 30
DTYPES, SCALES = ("fp8_e4m3", "fp8_e5m2"), ("tensor", "row", "block")


def computed(
    p: ScaledGemmProblem, operands: list[Array], *, promote: int = BLOCK, bits: int = 14, fault: str = ""
) -> Array:
    """The product as a kernel computes it that adds its registers to fp32 sums after so many depths."""
    a, b = (decode(one, of).astype(np.float64) for one, of in zip(operands, p.operand_dtypes, strict=False))
    of_a, of_b = operands[2:]
    if fault == "operands in e5m2":
        a = decode(encode(a, "fp8_e5m2"), "fp8_e5m2").astype(np.float64)
    sums = np.zeros((p.M, p.N), np.float32)
    step = min(promote, BLOCK if p.scale == "block" else promote)
    for k in range(0, p.K - (fault == "a depth too few"), step):
        end = min(p.K - (fault == "a depth too few"), k + step)
        part = in_registers(a[:, k:end], b[:, k:end], bits).astype(np.float32)
        if p.scale == "block":
            block = max(0, k // BLOCK - (fault == "the block before"))
            columns = np.arange(p.N) // BLOCK
            part = part * of_a[block][:, None] * of_b[columns, block][None, :]
        sums = sums + part
    if p.scale != "block":
        sums = sums * np.resize(of_a, p.M)[:, None] * np.resize(of_b, p.N)[None, :]
    assert sums.dtype == np.float32
    return encode(sums, "bf16")


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", SCALES)
def test_sums_that_leave_the_registers_every_128_depths_are_exact(dtype: str, scale: str, far: bool) -> None:
    p = ScaledGemmProblem(dtype, scale, 9, 140, 1000)
    operands, low, high = made(WORKER, p, p.M, far=far)
    assert (low == high).all()
    assert outside(computed(p, operands), low, high, "bf16") is None
    assert outside(computed(p, operands, bits=24), low, high, "bf16") is None


@pytest.mark.parametrize(("depth", "right"), [(512, True), (768, False), (2048, False)])
@pytest.mark.parametrize("scale", ["tensor", "row"])
def test_sums_that_stay_in_hoppers_registers_are_found(scale: str, depth: int, right: bool) -> None:
    p = ScaledGemmProblem("fp8_e4m3", scale, 9, 40, depth)
    operands, low, high = made(WORKER, p, p.M, far=True)
    said = outside(computed(p, operands, promote=WHOLE), low, high, "bf16")
    assert (said is None) is right
    if not right:
        assert int(str(said).split()[0]) > 9 * 40 / 2, "most values show it"


@pytest.mark.parametrize("fault", ["a depth too few", "operands in e5m2", "the block before"])
@pytest.mark.parametrize("far", [False, True])
def test_faults_are_wrong(fault: str, far: bool) -> None:
    p = ScaledGemmProblem("fp8_e4m3", "block", 9, 140, 1000)
    operands, low, high = made(WORKER, p, p.M, far=far)
    assert "values wrong" in str(outside(computed(p, operands, fault=fault), low, high, "bf16"))


def test_operands_are_normal_numbers_and_partial_sums_fit_fp32() -> None:
    for dtype in DTYPES:
        p = ScaledGemmProblem(dtype, "block", 1, 2, 65_536)
        for far in (False, True):
            (a, b, *scales), _, _ = made(WORKER, p, p.M, far=far)
            for stored, of, least in zip((a, b), p.operand_dtypes, (2.0**-6, 2.0**-6), strict=True):
                values = np.abs(decode(stored, of))
                assert values[values > 0].min() >= least
                assert values.max() <= 448
            assert all((np.frexp(one)[0] == 0.5).all() for one in scales), "powers of two"
            terms = decode(a, p.operand_dtypes[0])[0] * decode(b, "fp8_e4m3")[0]
            terms = terms * np.repeat(scales[0][:, 0] * scales[1][0], BLOCK)
            exact = np.cumsum(terms.astype(np.float64))
            assert (np.cumsum(terms, dtype=np.float32) == exact).all()


def test_rows_repeat_with_their_scales() -> None:
    p = ScaledGemmProblem("fp8_e4m3", "block", 100, 130, 512)
    of_a = WORKER.others(p, np.random.default_rng(1), 7, far=True)[1].whole()
    assert (of_a[:, 7:] == of_a[:, :-7]).all()
    assert (of_a[:, 1:] != of_a[:, :-1]).any()


def test_tables_names_and_ids_are_told_apart() -> None:
    assert operation_of_columns(("scale", "M", "N", "K")).name == "scaled_gemm"
    assert operation_of_columns(("M", "N", "K")).name == "gemm"
    with pytest.raises(ProblemError, match="K = 65537 is not an integer from 1 to 65,536"):
        problem_from_id("scaled_gemm-fp8_e4m3-row-m1-n1-k65537")
    with pytest.raises(ProblemError, match="one looks like scaled_gemm-fp8_e4m3-block"):
        problem_from_id("scaled_gemm-fp8_e4m3-row-m1-n1")


def test_bytes_count_scales() -> None:
    p = ScaledGemmProblem("fp8_e4m3", "block", 5, 200, 300)
    assert p.operand_shapes == ((5, 300), (200, 300), (3, 5), (2, 3), (5, 200))
    assert p.bytes == 5 * 300 + 200 * 300 + 4 * (15 + 6) + 2 * 5 * 200
