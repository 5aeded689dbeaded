"""Expressions: traced from Python, evaluated as Python would, and never run as code."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.triton import ExpressionError, cdiv, maximum, minimum, where
from tile_oracle.triton.expression import checked, evaluate, is_multiple, number, text_of, tree_of

M, N = number("M"), number("N")
FORMULAS: list[Callable[[Any, Any], Any]] = [
    lambda m, n: (m + 127) // 128 * ((n + 63) // 64),
    lambda m, n: cdiv(m, 128) * cdiv(n, 64) + m % 7 - 3 * n,
    lambda m, n: minimum(m, 132) + maximum(n, m) - (-m),
    lambda m, n: where(m % 64 == 0, m, n) + (m < n) + (m >= n) * 2 + (m != 5),
    lambda m, n: (m & 15) | (n >> 2) ^ (n << 1),
    lambda m, n: 100 - m + 1000 // (n + 1) + 17 % (m + 1),
]


@given(st.sampled_from(FORMULAS), st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_traced_formula_gives_what_python_gives(formula: Callable[[Any, Any], Any], m: int, n: int) -> None:
    expected = formula(m, n)
    expected = evaluate(tree_of(expected), {}) if not isinstance(expected, int) else expected
    tree = json.loads(json.dumps(tree_of(formula(M, N))))
    assert evaluate(checked(tree), {"M": m, "N": n}) == expected


def test_conditions_cannot_be_decided_while_tracing() -> None:
    with pytest.raises(ExpressionError, match=r"\(M % 64\) == 0 depends on the problem .* use where"):
        bool(M % 64 == 0)
    with pytest.raises(ExpressionError, match="use where"):
        min(M, 4)
    with pytest.raises(ExpressionError, match="is no number here"):
        range(M)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "tree", [["__import__", "os", 1], ["+", 1], ["+", 1, 2, 3], [], None, 1.5, True, ["+", 1, {"a": 1}]]
)
def test_other_trees_are_refused(tree: object) -> None:
    with pytest.raises(ExpressionError):
        checked(tree)


def test_too_large_trees_are_refused() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = ["+", deep, 1]
    with pytest.raises(ExpressionError, match="too large"):
        checked(deep)


def test_evaluation_has_limits() -> None:
    with pytest.raises(ExpressionError, match="divides by zero"):
        evaluate(tree_of(M // N), {"M": 1, "N": 0})
    with pytest.raises(ExpressionError, match="beyond"):
        evaluate(tree_of(M << 64), {"M": 1})
    with pytest.raises(ExpressionError, match="Q is not known: there are M"):
        evaluate("Q", {"M": 1})


def test_multiples_are_proven() -> None:
    known = frozenset(("M",))
    proven = [M, M * N, 3 * M + 32, where(N > 1, M, 16), minimum(M, 64), 0, M - 16]
    unproven = [N, M + 1, M // 2, M % 16, M + N, 8, where(M > 1, N, M)]
    assert all(is_multiple(tree_of(one), 16, known) for one in proven)
    assert not any(is_multiple(tree_of(one), 16, known) for one in unproven)


def test_texts_read_as_python() -> None:
    assert text_of(tree_of(cdiv(M, 64) * N)) == "(((M + 64) - 1) // 64) * N"
    assert text_of(tree_of(minimum(M, 3))) == "minimum(M, 3)"
