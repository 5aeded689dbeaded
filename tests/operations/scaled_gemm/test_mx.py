"""Scaled products of MX formats: packing, kinds, and compiled kernels, right ones and ones with a fault."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pytest_project import Project
from tile_oracle.arch.table import fp8_refusal
from tile_oracle.cli import main
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.triton.child_process import triton_folder
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.errors import KernelError, ProblemError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.operation import Kind, operation_named
from tile_oracle.operations.scaled_gemm import cpu_source
from tile_oracle.operations.scaled_gemm.on_device import WORKER
from tile_oracle.operations.scaled_gemm.problem import MX_BLOCK, ScaledGemmKernel, ScaledGemmProblem
from tile_oracle.problem import problem_from_id
from tile_oracle.problem.number_formats import decode, encode

DTYPES = ("fp4_e2m1", "fp8_e4m3", "fp8_e5m2")
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
PROBLEMS = (
    ScaledGemmProblem("fp4_e2m1", "mx", 9, 20, 992),
    ScaledGemmProblem("fp4_e2m1", "mx", 3, 4, 32),
    ScaledGemmProblem("fp8_e4m3", "mx", 9, 20, 992),
    ScaledGemmProblem("fp8_e5m2", "mx", 9, 20, 96),
)
A, B = "OF_A[code(a, k + i)]", "OF_B[code(b, k + i)]"
OF_A, OF_B = "m * blocks + i", "(MX ? n : n / BLOCK) * blocks + i"
FAULTS = {
    "the scale of the neighbouring block of A": (OF_A, "m * blocks + (i ^ (i + 1 < blocks))"),
    "the scale of the neighbouring block of B": (OF_B, "n * blocks + (i ? i - 1 : 0)"),
    "the scale of the neighbouring row": (OF_A, "(m ? m - 1 : 0) * blocks + i"),
    "the halves of a byte of A swapped": (A, "OF_A[code(a, (k + i) ^ 1)]"),
    "an e8m0 off by one": ("return OF_SCALE(value)", "return OF_SCALE((uint8_t)(value + 1))"),
    "the sign bit dropped": (A, f"__builtin_fabsf({A})"),
    "values clamped to 4": (B, f"({B} > 4 ? 4 : {B})"),
    "a depth too few": ("i * BLOCK, end)", "i * BLOCK, end - (end == p->K))"),
}
"""Fault -> text of the kernels' source, and what stands there instead."""


def statuses(device: CpuDevice, folder: Path, columns: int = 4) -> dict[str, tuple[str, str]]:
    """What the check says of a kernel for each of the problems."""
    found = {}
    with Builder("cpu", toolchain="ziglang", build_dir=folder) as builder:
        for problem in PROBLEMS:
            kernel = ScaledGemmKernel(problem.dtype, problem.scale, columns)
            built = builder.submit(kernel).result()
            assert built.binary is not None, built.log
            device.load(problem, 1)
            result = device.check(built.binary.path)
            found[problem.id] = (result.status, result.detail)
    return found


def test_compiled_kernels_are_right(device: CpuDevice, tmp_path: Path) -> None:
    for columns in (1, 4):
        assert {one for one, _ in statuses(device, tmp_path, columns).values()} == {"ok"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_with_a_fault_is_wrong(
    device: CpuDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    right, wrong = FAULTS[fault]
    assert cpu_source._PRODUCT.count(right) == 1
    monkeypatch.setattr(cpu_source, "_PRODUCT", cpu_source._PRODUCT.replace(right, wrong))
    found = statuses(device, tmp_path)
    for problem in PROBLEMS:
        if "block" in fault and problem.K == MX_BLOCK:
            continue
        status, detail = found[problem.id]
        assert status == "wrong", (problem.id, detail)
        assert "values wrong" in detail


@given(st.lists(st.tuples(st.sampled_from(E2M1), st.sampled_from((1, -1))), min_size=2, max_size=64))
def test_pairs_hold_the_first_value_in_the_lower_half(drawn: list[tuple[float, int]]) -> None:
    values = np.array([value * sign for value, sign in drawn[: len(drawn) // 2 * 2]], np.float32)
    stored = encode(values[None], "fp4_e2m1")
    assert stored.shape == (1, len(values) // 2)
    assert (decode(stored, "fp4_e2m1") == values).all()
    first, second = int(stored[0, 0]) & 15, int(stored[0, 0]) >> 4
    assert [E2M1[first & 7], E2M1[second & 7]] == np.abs(values[:2]).tolist()
    assert [first >> 3, second >> 3] == np.signbit(values[:2]).tolist()


def test_scales_are_powers_of_two_and_255_is_nan() -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = decode(codes, "e8m0")
    assert (values[:-1] == np.ldexp(1.0, np.arange(255) - 127)).all()
    assert np.isnan(values[-1])
    assert (encode(values[:-1], "e8m0") == codes[:-1]).all()


def test_operands_use_all_of_e2m1_and_sums_are_exact_in_fp32() -> None:
    problem = ScaledGemmProblem("fp4_e2m1", "mx", 3, 8, 65_536)
    for far in (False, True):
        random = np.random.default_rng(5)
        a = WORKER.first(problem, random, problem.M, far=far)
        b, *scales = (one.whole() for one in WORKER.others(problem, random, None, far=far))
        if not far:
            for one in (a, b):
                assert set(np.abs(decode(one, "fp4_e2m1")).ravel().tolist()) == set(E2M1)
        one, other = decode(a, "fp4_e2m1")[0], decode(b, "fp4_e2m1")[0]
        factors = decode(scales[0], "e8m0")[0] * decode(scales[1], "e8m0")[0]
        terms = one * other * np.repeat(factors, MX_BLOCK)
        assert (np.cumsum(terms, dtype=np.float32) == np.cumsum(terms.astype(np.float64))).all()
        alike = [np.mean(np.diff(scale.astype(int)) == 0) for scale in scales]
        assert max(alike) < 0.2, "neighbouring blocks have different scales"


def test_no_list_has_a_kind_that_no_problem_has() -> None:
    operation = operation_named("scaled_gemm")
    kinds = set(operation.kinds({}))
    assert len(kinds) == 3 * 2 * 2 - 3
    for dtype, scale in product(operation.kind_fields["dtype"], operation.kind_fields["scale"]):
        kind = Kind.of("scaled_gemm", dtype=dtype, scale=scale)
        if kind in kinds:
            assert problem_from_id(f"scaled_gemm-{dtype}-{scale}-m1-n1-k32").kind == kind
        else:
            with pytest.raises(ProblemError, match=f"e2m1 have scales of mx, not of {scale}"):
                problem_from_id(f"scaled_gemm-{dtype}-{scale}-m1-n1-k32")
            with pytest.raises(KernelError):
                parse_kernel_name(f"scaled_gemm_{dtype}_{scale}_triton.mx_tiles.BLOCK_M=16")
    with pytest.raises(ProblemError, match="K = 48 is no multiple of 32, the elements that share an MX"):
        problem_from_id("scaled_gemm-fp4_e2m1-mx-m1-n1-k48")


def test_bytes_count_half_a_byte_an_element_and_a_byte_a_scale() -> None:
    problem = ScaledGemmProblem("fp4_e2m1", "mx", 5, 200, 320)
    assert problem.operand_shapes == ((5, 160), (200, 160), (5, 10), (200, 10), (5, 200))
    assert problem.bytes == (5 + 200) * (160 + 10) + 2 * 5 * 200


@pytest.mark.slow
@pytest.mark.skipif(triton_folder() is None, reason="Triton is not installed")
def test_sessions_and_lists_say_why_hopper_has_none(
    make_project: Callable[[], Project], capsys: pytest.CaptureFixture[str]
) -> None:
    why = "fp4_e2m1 with MX scales has no code for sm_90: its matrix unit does not multiply MX formats"
    asked = ("--kernels", "triton", "--target", "interpret", "--isa", "sm_90")
    done = make_project().pytest("--problem-set", "scaled_gemm_mx_smoke", *asked)
    assert (done.status, [line for line in done.lines if line.startswith("ERROR")]) == (4, [f"ERROR: {why}"])
    listed = ("--op", "scaled_gemm", "--arch", "sm_90", "--dtype", "fp4_e2m1")
    assert main(("pool", "list", "--kernels", "triton", *listed)) != 0
    assert f"tile-oracle pool list: {why}\n" in capsys.readouterr().err


def test_other_matrix_units_and_libraries_refuse_it() -> None:
    for dtype in DTYPES:
        kind = Kind.of("scaled_gemm", dtype=dtype, scale="mx")
        assert fp8_refusal(kind, "gfx950") is None
        assert fp8_refusal(kind, "sm_90") == (
            f"{dtype} with MX scales has no code for sm_90: its matrix unit does not multiply MX formats"
        )
        problem = ScaledGemmProblem(dtype, "mx", 16, 16, 32)
        assert not any(
            one.takes(problem, "gfx950") or one.takes(problem, "sm_90") for one in LIBRARIES.values()
        )
