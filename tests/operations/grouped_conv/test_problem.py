"""Problems: identity, shapes and work, each compared with an independent computation."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tile_oracle.errors import HarnessError, ProblemError
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES, GroupedConvProblem
from tile_oracle.problem.fields import ELEMENT_BYTES

LAYER = {"direction": "forward", "dtype": "bf16", "ndim": 2, "N": 1, "C": 8, "K": 16, "G": 1, "Hi": 9}
LAYER |= {"Wi": 7, "Y": 3, "X": 2}


@st.composite
def problems(draw: st.DrawFn, extents: int = 300) -> GroupedConvProblem:
    ndim = draw(st.sampled_from((2, 3)))
    group = draw(st.integers(1, 40))
    row = {
        "direction": draw(st.sampled_from(DIRECTIONS)),
        "dtype": draw(st.sampled_from(DTYPES)),
        "ndim": ndim,
        "N": draw(st.integers(1, 99)),
        "G": group,
        "C": group * draw(st.integers(1, 99)),
        "K": group * draw(st.integers(1, 99)),
    }
    for image, taps, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w"))[3 - ndim :]:
        row[image] = draw(st.integers(1, extents))
        row[taps] = draw(st.integers(1, 7))
        row[f"stride_{axis}"] = draw(st.integers(1, 4))
        row[f"pad_{axis}"] = draw(st.integers(0, 8))
        row[f"dilation_{axis}"] = draw(st.integers(1, 5))
        assume(row[image] + 2 * row[f"pad_{axis}"] > (row[taps] - 1) * row[f"dilation_{axis}"])
    return GroupedConvProblem(**row)


def positions(extent: int, taps: int, stride: int, pad: int, dilation: int) -> list[list[int]]:
    """The input coordinates that each output reads, found by sliding the filter along the padded axis."""
    placed = []
    for start in itertools.count(-pad, stride):
        reach = [start + tap * dilation for tap in range(taps)]
        if reach[-1] >= extent + pad:
            return placed
        placed.append(reach)
    raise AssertionError


@pytest.mark.parametrize("value", [3.5, float("nan"), float("inf"), "3.0", "", None, "x", []])
def test_a_row_is_never_rounded_into_another_problem(value: object) -> None:
    with pytest.raises(ProblemError, match=r"C = .* is not an integer"):
        GroupedConvProblem.from_row(LAYER | {"C": value})


@pytest.mark.parametrize("field", ["direction", "dtype", "ndim", "N", "X"])
def test_a_row_without_a_needed_field_is_refused(field: str) -> None:
    with pytest.raises(ProblemError, match=f"{field} is missing"):
        GroupedConvProblem.from_row({name: value for name, value in LAYER.items() if name != field})


@given(problems(extents=60))
def test_the_output_has_one_value_for_each_place_where_the_filter_fits(problem: GroupedConvProblem) -> None:
    axes = zip(
        problem.input_spatial, problem.filter, problem.stride, problem.pad, problem.dilation, strict=True
    )
    counted = tuple(len(positions(*axis)) for axis in axes)
    assert problem.output_spatial == counted
    assert (problem.Do, problem.Ho, problem.Wo) == (1,) * (3 - problem.ndim) + counted


@given(problems(extents=20))
def test_flops_are_one_multiply_and_one_add_for_each_tap_of_each_output(problem: GroupedConvProblem) -> None:
    axes = zip(
        problem.input_spatial, problem.filter, problem.stride, problem.pad, problem.dilation, strict=True
    )
    taps = math.prod(sum(map(len, positions(*axis))) for axis in axes)
    multiplications = problem.N * taps * problem.K * (problem.C // problem.G)
    assert problem.flops == 2 * multiplications
    m, n, k = problem.gemm_shape
    per_group = 2 * m * n * k * problem.G
    if (
        problem.direction == "bwd_data"
    ):  # this GEMM has one row per input pixel, whether or not outputs read it
        per_group = per_group // math.prod(problem.input_spatial) * math.prod(problem.output_spatial)
    assert per_group == problem.flops


@given(problems(extents=20))
def test_bytes_are_those_of_the_three_tensors(problem: GroupedConvProblem) -> None:
    shapes = (problem.input_shape, problem.weight_shape, problem.output_shape)
    values = sum(np.empty(shape, dtype=np.bool_).size for shape in shapes if math.prod(shape) < 2**28)
    assume(all(math.prod(shape) < 2**28 for shape in shapes))
    assert problem.bytes == values * {"bf16": 2, "fp16": 2, "fp32": 4}[problem.dtype]
    assert ELEMENT_BYTES[problem.dtype] * values == problem.bytes


def test_layouts_are_channels_last_with_the_group_beside_the_channel() -> None:
    flat = GroupedConvProblem("forward", "bf16", 2, N=2, C=12, K=18, G=3, Hi=9, Wi=8, Y=3, X=2)
    assert flat.input_shape == (2, 9, 8, 3, 4)  # N Hi Wi G C
    assert flat.weight_shape == (3, 6, 3, 2, 4)  # G K Y X C
    assert flat.output_shape == (2, 7, 7, 3, 6)  # N Ho Wo G K
    deep = GroupedConvProblem("forward", "bf16", 3, N=2, C=12, K=18, G=3, Hi=9, Wi=8, Y=3, X=2, Di=5, Z=4)
    assert deep.input_shape == (2, 5, 9, 8, 3, 4)
    assert deep.weight_shape == (3, 6, 4, 3, 2, 4)
    assert deep.output_shape == (2, 2, 7, 7, 3, 6)


def test_the_result_is_the_last_operand() -> None:
    problem = GroupedConvProblem(**LAYER)
    x, w, y = problem.input_shape, problem.weight_shape, problem.output_shape
    assert problem.operand_shapes == (x, w, y)
    assert dataclasses.replace(problem, direction="bwd_data").operand_shapes == (y, w, x)
    assert dataclasses.replace(problem, direction="bwd_weight").operand_shapes == (x, y, w)


def test_a_known_layer() -> None:
    more = {"stride_h": 2, "stride_w": 2, "pad_h": 3, "pad_w": 3}
    layer = GroupedConvProblem("forward", "bf16", 2, N=1, C=3, K=64, G=1, Hi=224, Wi=224, Y=7, X=7, **more)
    assert layer.id == "forward-bf16-n1-c3-k64-i224x224-f7x7-s2-p3"
    assert (layer.Ho, layer.Wo) == (112, 112)
    assert layer.flops == 236_027_904
    assert layer.bytes == 2 * (150_528 + 9_408 + 802_816)
    assert layer.tflops(latency_ms=1.0) == pytest.approx(0.236027904)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "backward"}, "direction 'backward' is not one of forward, bwd_data, bwd_weight"),
        ({"dtype": "fp8"}, "dtype 'fp8' is not one of bf16, fp16, fp32"),
        ({"ndim": 1}, "ndim 1 is not one of 2, 3"),
        ({"N": 0}, "N = 0 is not an integer from 1"),
        ({"pad_h": -1}, "pad_h = -1 is not an integer from 0"),
        ({"C": 8.0}, "C = 8.0 is not an integer"),
        ({"K": True}, "K = True is not an integer"),
        ({"Hi": "9"}, "Hi = '9' is not an integer"),
        ({"Wi": 2**31}, "Wi = 2147483648 is not an integer"),
        ({"G": 3}, "G = 3 must divide C = 8 and K = 16"),
        ({"Di": 2}, "set ndim = 3"),
        ({"pad_d": 1}, "set ndim = 3"),
        ({"Hi": 2}, "the dilated filter Y is larger than the padded input Hi"),
        ({"dilation_w": 9}, "the dilated filter X is larger than the padded input Wi"),
        ({"ndim": 3, "Z": 3}, "the dilated filter Z is larger than the padded input Di"),
        ({"N": 2**31 - 1, "C": 2**30, "Hi": 2**30}, "no machine runs this problem"),
    ],
)
def test_invalid_dimensions_are_refused_in_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        GroupedConvProblem(**(LAYER | change))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, HarnessError)


@pytest.mark.parametrize(
    "text", ["", "forward", "forward-bf16-n1-c8", "../../etc/passwd", "forward-bf16-n1-c8-k8-i9-f3"]
)
def test_an_invalid_id_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ProblemError, match="one looks like forward-bf16-n1-c64-k64-i56x56-f3x3-p1"):
        GroupedConvProblem.from_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "forward-bf16-n1-g1-c8-k8-i9x9-f3x3",  # a default written out
        "forward-bf16-n01-c8-k8-i9x9-f3x3",
        "forward-bf16-n1-c8-k8-i9x9-f3x3-p1x1",
        "forward-bf16-n1-c8-k8-i9x9-f3x3-s1",
    ],
)
def test_an_unusual_spelling_of_an_id_is_refused_with_the_right_one(text: str) -> None:
    with pytest.raises(ProblemError, match="did you mean 'forward-bf16-n1-c8-k8-i9x9-f3x3"):
        GroupedConvProblem.from_id(text)


def assert_reads_back_or_is_refused(text: str) -> None:
    try:
        written, lines = GroupedConvProblem.from_id(text).id, 1
    except ProblemError as error:
        written, lines = text, len(str(error).splitlines())
    assert (written, lines) == (text, 1)


@given(st.text(alphabet="forwardbf16-nckigspdx0123456789", max_size=60) | st.text(max_size=40))
def test_any_text_is_an_id_or_an_error(text: str) -> None:
    assert_reads_back_or_is_refused(text)


@given(
    st.sampled_from(("2x2", "2x2x2", "5x5", "9x9x9")),
    st.sampled_from(("1x1", "2x2", "1x1x1", "3x3x3")),
    st.sampled_from(("", "-s2", "-s2x1", "-s2x1x2")),
    st.sampled_from(("", "-p1", "-p1x0", "-p1x0x1")),
)
def test_extents_of_another_rank_in_an_id_are_an_error(i: str, f: str, s: str, p: str) -> None:
    text = f"forward-bf16-n1-c8-k8-i{i}-f{f}{s}{p}"
    assert_reads_back_or_is_refused(text)
