"""The filter language has Python's semantics, and refuses anything else with a clear message."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.errors import RuleError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.pool.kernel_filter import MAX_CHARACTERS, MAX_DEPTH, KernelFilter, filter_fields

KERNEL = parse_kernel_name("grouped_conv_forward_bf16_2d_64x128x64_compv3_intrawave_dsb")


@settings(max_examples=300)
@given(st.text(alphabet="tile_mn pielo==<>()[]',0123456789*/%+-.anditrue\n\\\"", max_size=60))
def test_any_text_is_a_filter_or_one_line(text: str) -> None:
    try:
        where = KernelFilter(text)
        matches = where.matches(KERNEL)
    except RuleError as error:
        said = str(error)
    else:
        said = str(matches)
        assert matches in (True, False)
    assert "\n" not in said


# ---- meaning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tile_n >= 128 and pipeline == 'compv3'", True),
        ("64 <= tile_m < tile_n", True),
        ("64 <= tile_m > tile_n", False),
        ("tile_m in (64, 128) and tile_k not in [32]", True),
        ("not split_image and double_smem_buffer", True),
        ("not tile_m == 64", False),
        ("pad_m == pad_n == True", True),
        ("tile_m * tile_n // 1024 == 8", True),
        ("-tile_m % 7 == 6", True),
        ("tile_m - 32 - 16 == 16", True),
        ("'64x128' in name and 'wave' in scheduler", True),
        ("False or True and False", False),
        ('\ttile_m\n==\r64 or dtype == "fp16"', True),
        (
            "tile_m == 64 or tile_m // (tile_m - 64) == 1",
            True,
        ),  # short-circuit: the right side is not evaluated
    ],
)
def test_examples(text: str, expected: bool) -> None:
    assert KernelFilter(text).matches(KERNEL) is expected


def test_a_filter_sees_every_field_of_a_kernel() -> None:
    for name, kind in filter_fields("grouped_conv").items():
        value = getattr(KERNEL, name)
        assert KernelFilter(f"{name} == {value!r}").matches(KERNEL), (name, kind)
    assert not KernelFilter("two_stage").matches(replace(KERNEL, direction="bwd_weight"))


def test_equal_texts_are_equal_filters_and_can_be_pickled() -> None:
    where = KernelFilter("tile_m == 64")
    assert where == KernelFilter("tile_m == 64") != KernelFilter("tile_m == 32")
    assert len({where, KernelFilter("tile_m == 64")}) == 1
    assert pickle.loads(pickle.dumps(where)).matches(KERNEL)
    assert repr(where) == "KernelFilter(text='tile_m == 64')"


# ---- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("tile_nn >= 3", 1, "a kernel has no field 'tile_nn'; did you mean tile_n?"),
        ("pad_m and wrap_tile_m == 3", 11, "a kernel has no field 'wrap_tile_m'; did you mean warp_tile_m?"),
        ("qqq == 3", 1, "a kernel has no field 'qqq'; fields: direction, dtype, ndim"),
        ("pipeline == compv3", 13, "a kernel has no field 'compv3' (put a text in quotes: 'compv3')"),
        ("tile_n == 'x'", 8, "'==' cannot compare these: tile_n is an integer, this is a text"),
        ("pipeline > 3", 10, "'>' cannot compare these: pipeline is a text, this is an integer"),
        ("pipeline > 'mem'", 10, "'>' compares integers only, but pipeline is a text"),
        ("split_image == 1", 13, "'==' cannot compare these: split_image is true or false, this is an"),
        ("tile_n in (64)", 12, "'in' needs a list like (64, 128) or a text field, but this is an integer"),
        ("pipeline in ('mem')", 14, "'in' needs a list like ('mem', 'compv3')"),
        ("pipeline in (64, 32)", 10, "'in' cannot compare these: pipeline is a text, this is a list, each"),
        ("tile_n in [64, 'a']", 16, "an entry of this list, like its first one, must be an integer"),
        ("tile_n in ()", 11, "an empty list matches no kernel"),
        ("[64] == tile_n", 1, "a list is valid only after 'in'"),
        ("tile_n == (64, 64)", 11, "a list is valid only after 'in'"),
        ("tile_n", 1, "a filter as a whole must be true or false, but tile_n is an integer"),
        ("tile_n and pad_m", 1, "the left side of 'and' must be true or false, but tile_n is an integer"),
        ("pad_m or pipeline", 10, "the right side of 'or' (column 7) must be true or false"),
        ("not tile_n", 5, "the operand of 'not' must be true or false"),
        ("-pad_m == 1", 2, "the operand of '-' must be an integer, but pad_m is true or false"),
        ("1 + name == 2", 5, "the right side of '+' must be an integer, but name is a text"),
        ("tile_n // 0 == 1", 8, "division by zero"),
        ("tile_n % -(0) == 1", 8, "division by zero"),
        ("tile_n = 64", 8, "'=' is not known; use =="),
        ("tile_n == 64 && pad_m", 14, "'&&' is not known; use and"),
        ("tile_n == 64 AND pad_m", 14, "'AND' is not known; use and"),
        ("split_image == true", 16, "'true' is not known; use True"),
        ("tile_n / 2 == 3", 8, "'/' is not known; use // (whole division)"),
        ("9**9**9**9 == 1", 2, "'**' is not known"),
        ("tile_n == 1.5", 11, "not an integer"),
        ("tile_n == 64k", 12, "invalid decimal literal; write for example tile_n >= 128"),
        ("tile_n == 12345678901", 11, "a number has at most 10 digits"),
        ("tile_n ==", 10, "invalid syntax"),
        ("(tile_n == 64", 1, "'(' was never closed"),
        ("tile_n == 'x", 11, "this text has no closing quote"),
        (r"name == 'a\'b'", 9, "this text has no closing quote"),
        ("name.upper() == 'X'", 1, "not an expression of kernel filters"),
        ("__class__", 1, "a kernel has no field '__class__'"),
        ("tile_n == 64 if pad_m else 3", 1, "not an expression of kernel filters"),
        ("pad_m == True # and pad_n", 15, "unexpected character '#'"),
        ("tile_n == ٦٤", 11, "unexpected character"),
        ("dtype == 'bf17'", 10, "dtype is never 'bf17'; it is one of bf16, fp16, fp32"),
        ("'wave' != scheduler", 1, "scheduler is never 'wave'"),
        ("pipeline in ('compv3', 'comp5')", 13, "'comp5' is not a pipeline"),
        ("\0", 1, "unexpected character"),
    ],
)
def test_a_mistake_is_reported_with_its_column(text: str, column: int, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        KernelFilter(text)
    said = str(caught.value)
    assert f", column {column}: " in said, said
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_filter_is_a_mistake(text: str) -> None:
    with pytest.raises(RuleError, match="the kernel filter is empty"):
        KernelFilter(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 2000 + "pad_m" + ")" * 2000,
        "not " * 1000 + "pad_m",
        "-" * 4000 + "1 == 1",
        "[" * 3000,
        "not " * MAX_DEPTH + "pad_m",
        "x" * 10_000_000,
        "pad_m" + " and pad_m" * 500,
        "9" * 4000 + " == 1",
        "1" + " + 1" * MAX_DEPTH + " == 1",
        "name == '" + "x" * 1_000_000 + "'",
    ],
    ids=["parens", "nots", "signs", "lists", "one too deep", "huge", "long", "digits", "sum", "text"],
)
def test_too_deep_or_too_long_filters_are_refused(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        KernelFilter(text)
    assert len(str(caught.value)) < 300


def test_the_deepest_and_the_longest_filter_still_work() -> None:
    assert KernelFilter("not " * (MAX_DEPTH - 2) + "pad_m").matches(KERNEL)
    longest = ("pad_m" + " and pad_m" * MAX_CHARACTERS)[: MAX_CHARACTERS - MAX_CHARACTERS % 10 - 5]
    assert KernelFilter(longest).matches(KERNEL)


def test_a_division_by_zero_of_one_kernel_names_it() -> None:
    where = KernelFilter("tile_n % (tile_m - 64) == 0")
    with pytest.raises(RuleError, match=f"column 8: division by zero for kernel {KERNEL.name}"):
        where.matches(KERNEL)


def test_a_mistake_far_to_the_right_is_still_shown() -> None:
    text = "pad_m and " * 50 + "tile_q == 3 or " + "pad_m and " * 20 + "pad_n"
    with pytest.raises(RuleError, match="column 501: a kernel has no field 'tile_q'") as caught:
        KernelFilter(text)
    assert "tile_q == 3 or" in str(caught.value).partition(", column")[0]
    assert len(str(caught.value)) < 300
