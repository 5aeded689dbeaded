"""Escaping of CSV cells against formulas."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tile_oracle.files.spreadsheet import cell_text, safe_cell
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tile_oracle.problem_set import format_problem_set, load_problem_set


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", "-"])
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert safe_cell(text) == "'" + text


@pytest.mark.parametrize("text", ["-1", "+2.5", "-1e-3", "forward-bf16", "", "resnet50"])
def test_numbers_and_names_stay(text: str) -> None:
    assert safe_cell(text) == text


@settings(max_examples=200)
@given(st.text(alphabet="=+-@'\t1e.a"))
def test_every_text_round_trips(text: str) -> None:
    assert cell_text(safe_cell(text)) == text


def test_the_source_of_a_problem_comes_back_from_its_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    problem = GroupedConvProblem("forward", "bf16", 2, 1, 8, 8, 1, 5, 5, 3, 3)
    source = '=HYPERLINK("http://x","y")'
    text = format_problem_set([problem], [source], "made up")
    assert ',"=' not in text
    (tmp_path / "set.csv").write_text(text)
    assert load_problem_set(tmp_path / "set.csv").sources == (source,)
