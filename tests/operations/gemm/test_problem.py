"""GEMM problems: identity, shapes, work, and the equivalent convolution."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integer_operands import integer_operands
from tile_oracle.device.reference import exact_output
from tile_oracle.errors import ProblemError, ProblemSetError
from tile_oracle.operation import Kind, operation_names
from tile_oracle.operations.gemm.pointwise import (
    DIRECTION_OF_LAYOUT,
    operands_swapped,
    pointwise_conv,
    result_transposed,
)
from tile_oracle.operations.gemm.problem import GEMM_DTYPES, GEMM_LAYOUTS, GemmProblem
from tile_oracle.problem import kind_text, problem_from_id, problem_from_row
from tile_oracle.problem_set import format_problem_set, load_problem_set, merge_problem_sets

ROW = {"dtype": "bf16", "layout": "rcr", "M": 3, "N": 5, "K": 7}


@st.composite
def gemms(draw: st.DrawFn, largest: int = 2**20) -> GemmProblem:
    size = st.integers(1, largest)
    k = draw(size)
    return GemmProblem(
        draw(st.sampled_from(GEMM_DTYPES)),
        draw(st.sampled_from(GEMM_LAYOUTS)),
        draw(size),
        draw(size),
        k,
        draw(st.one_of(st.just(1), st.integers(1, min(k, 64)))),
    )


def test_ids_are_readable_and_omit_a_split_k_of_1() -> None:
    assert GemmProblem(**ROW).id == "gemm-bf16-rcr-m3-n5-k7"
    assert GemmProblem(**ROW, split_k=4).id == "gemm-bf16-rcr-m3-n5-k7-s4"


@pytest.mark.parametrize(
    "text",
    [
        "gemm-bf16-rcr-m3-n5",
        "gemm-bf16-rcr-m03-n5-k7",
        "gemm-bf16-rcr-m3-n5-k7-s1",
        "gemm-bf16-xyz-m3-n5-k7",
        "gemm-bf16-rcr-m3-n5-k7\n",
        "gemm-bf16-rcr-m3-n5-k99999999999",
        "gemm-int3-rcr-m3-n5-k7",
    ],
)
def test_nothing_else_is_an_id(text: str) -> None:
    with pytest.raises(ProblemError):
        problem_from_id(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"M": 0}, "M = 0 is not an integer from 1"),
        ({"N": 2**31}, "N = 2147483648 is not an integer"),
        ({"K": True}, "K = True is not an integer"),
        ({"K": 3.0}, "K = 3.0 is not an integer"),
        ({"layout": "rcc"}, "layout 'rcc' is not one of rcr, rrr, crr, ccr"),
        ({"dtype": "fp64"}, "dtype 'fp64' is not one of bf16, fp16, fp8, fp32"),
        ({"split_k": 8}, "split_k = 8 is more than K = 7"),
        ({"M": 2**31 - 1, "N": 2**31 - 1, "K": 2**31 - 1}, "more than 2\\^62 bytes"),
    ],
)
def test_invalid_dimensions_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        GemmProblem(**(ROW | change))


def test_a_row_without_a_needed_field_or_of_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ProblemError, match="K is missing"):
        GemmProblem.from_row({k: v for k, v in ROW.items() if k != "K"})
    with pytest.raises(ProblemError, match=f"operation 'sort' is not one of {', '.join(operation_names())}"):
        problem_from_row(ROW | {"op": "sort"})


@given(gemms(5000))
def test_work_counts_each_matrix_once(problem: GemmProblem) -> None:
    a, b, c = problem.operand_shapes
    assert problem.flops == 2 * problem.M * problem.N * problem.K
    element = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}[problem.dtype]
    result = 2 if problem.dtype == "fp8" else element
    assert problem.bytes == element * (math.prod(a) + math.prod(b)) + result * math.prod(c)
    assert problem.tflops(1.0) == pytest.approx(problem.flops / 1e9)


@pytest.mark.parametrize(
    ("layout", "a", "b"),
    [("rcr", (3, 7), (5, 7)), ("rrr", (3, 7), (7, 5)), ("crr", (7, 3), (7, 5)), ("ccr", (7, 3), (5, 7))],
)
def test_layouts_give_the_memory_order(layout: str, a: tuple[int, int], b: tuple[int, int]) -> None:
    problem = GemmProblem(**(ROW | {"layout": layout}))
    assert problem.operand_shapes == (a, b, (3, 5))
    assert problem.gemm_shape == (3, 5, 7)
    assert problem.kind == Kind.of("gemm", dtype="bf16", layout=layout)
    assert kind_text(problem.kind) == f"gemm bf16 {layout}"


@pytest.mark.parametrize("layout", DIRECTION_OF_LAYOUT)
@given(st.tuples(*[st.integers(1, 9)] * 3), st.integers(0, 99))
def test_a_product_is_a_1x1_convolution_of_the_same_memory(
    layout: str, sizes: tuple[int, int, int], seed: int
) -> None:
    problem = GemmProblem("fp32", layout, *sizes)
    a, b = integer_operands(problem, seed)
    conv = pointwise_conv(problem)
    first, second = (b, a) if operands_swapped(problem) else (a, b)
    x, y, out = conv.operand_shapes
    of_conv = exact_output(conv, first.reshape(x), second.reshape(y))
    m, n, k = sizes
    if result_transposed(layout):
        assert np.array_equal(of_conv.reshape(n, m).T, exact_output(problem, a, b))
    else:
        assert np.array_equal(of_conv.reshape(m, n), exact_output(problem, a, b))
    assert math.prod(out) == problem.M * problem.N
    assert conv.flops == problem.flops
    assert conv.gemm_shape == ((n, m, k) if result_transposed(layout) else (m, n, k))


# Problem sets of GEMMs.


def load(tmp_path: Path, text: str) -> tuple[object, ...]:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    return load_problem_set(path).problems


@pytest.mark.parametrize(
    "text",
    [
        "M,N,K\n1,4096,512\n",
        "op,M,N,K\ngemm,1,4096,512\n",
        "# mine\nsource,K,N,M,dtype,layout,split_k\nhere,512,4096,1,bf16,rcr,1\n",
    ],
)
def test_columns_or_a_word_mark_a_file_of_gemms(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == (GemmProblem("bf16", "rcr", 1, 4096, 512),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M,N\n1,2\n", r"mine.csv:1: no column K; a header row needs at least M,N,K"),
        ("op,M,N,K\ngrouped_conv,1,2,3\n", r"mine.csv:2: op = 'grouped_conv' in a file of GEMMs; known"),
        ("op,N,C,K,Hi,Wi,Y,X\ngemm,1,8,8,9,9,3,3\n", r"op = 'gemm' in a file of convolutions; known"),
        ("op,M,N,K\nlayer_norm,1,2,3\n", r"mine.csv:2: unknown operation 'layer_norm'; known"),
        ("M N K\n1 2 3\n", r"mine.csv:1: 'M N K' is one column: write commas, M,N,K"),
        ("M;N;K\n1;2;3\n", r"mine.csv:1: 'M;N;K' is one column: write commas, M,N,K"),
        ("layout,M,N,K\nrcc,1,2,3\n", r"layout 'rcc' is not one of"),
        ("M,N,K,split_k\n1,2,3,4\n", r"split_k = 4 is more than K = 3"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProblemSetError, match=message):
        load(tmp_path, text)


def test_a_file_holds_one_operation() -> None:
    both = merge_problem_sets([load_problem_set("gemm_smoke"), load_problem_set("forward_smoke")])
    assert len(both.problems) == 21
    with pytest.raises(ProblemSetError, match="problems are of several operations"):
        format_problem_set(both.problems, both.sources, "")
