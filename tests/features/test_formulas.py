"""Sheets of formulas: what a line means, what is refused, and the work that operations' sheets state."""

from __future__ import annotations

import numpy as np
import pytest

from tile_oracle.features.columns import field_columns
from tile_oracle.features.feature_table import FeatureSchema
from tile_oracle.features.formulas import formulas
from tile_oracle.features.schemas import work_of
from tile_oracle.problem_set import list_problem_sets, load_problem_set

ROWS = {"a": [1.0, 6.0], "b": [4.0, 3.0], "pipeline": ["mem", "basic_v1"]}


@pytest.mark.parametrize(
    ("formula", "values"),
    [
        ("2 * a + b / 2", [4.0, 13.5]),
        ("(a + 2) // b", [0.0, 2.0]),
        ("(a < b) & (b != 3)", [1.0, 0.0]),
        ("(a >= b) * b", [0.0, 3.0]),
        ("where(a > 2, minimum(a, 5), b)", [4.0, 5.0]),
        ("power_of_two(b)", [4.0, 1.0]),
        ('pipeline == "mem"', [1.0, 0.0]),
        ('pipeline in ("mem", "compv3")', [1.0, 0.0]),
        ('starts(pipeline, "basic_v")', [0.0, 1.0]),
        ("of_both(a) + 1", [5.0, 19.0]),
    ],
)
def test_a_line_is_a_formula_of_columns(formula: str, values: list[float]) -> None:
    features = formulas(f"found = {formula}  # it", of_both=lambda t, a: a * t.b)
    assert FeatureSchema("one", "gemm", features).compute(ROWS, {}).T.tolist() == [values]


def test_a_meaning_may_stand_in_the_next_line() -> None:
    sheet = """
a  # given
c = (
    a * b
)  # product, at its end
d = c + hw_units
    # sum, below
"""
    features = formulas(sheet)
    assert [(one.name, one.meaning) for one in features] == [
        ("a", "given"), ("c", "product, at its end"), ("d", "sum, below"),
    ]  # fmt: skip
    schema = FeatureSchema("three", "gemm", features)
    assert schema.compute(ROWS, {"hw_units": 2.0}).tolist() == [[1, 4, 6], [6, 18, 20]]


@pytest.mark.parametrize(
    ("sheet", "message"),
    [
        ("a = b + c", "no formula with its meaning: a = b"),
        ("a + b  # sum", "no formula with its meaning"),
        ("a = [b]  # list", r"formulas have no \[b\]"),
        ("a = lambda: 1  # function", "formulas have no lambda"),
    ],
)
def test_what_no_formula_has_is_refused(sheet: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        formulas(sheet)


def test_every_operation_counts_the_work_of_its_problems() -> None:
    """Problems of several sizes in one table, whose columns may be called as an attribute of the table.

    Attention over paged caches counts a mean of its lengths: its features are about right.
    """
    seen = set()
    for name in list_problem_sets():
        problems = load_problem_set(name).problems[::7]
        for op in {problem.op for problem in problems} - {"paged_attention"}:
            own = [problem for problem in problems if problem.op == op]
            work = work_of(field_columns(own))
            assert np.array_equal(work.flops, [float(one.flops) for one in own]), (name, op)
            seen.add(op)
    assert {"gemm", "grouped_conv", "attention", "softmax", "rms_norm"} <= seen
