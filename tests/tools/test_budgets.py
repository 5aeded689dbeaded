"""Budgets: what counts as a line of code, and that a part over its budget fails."""

from __future__ import annotations

import pytest

from tools import budgets

PYTHON = '''"""A module."""

# why
VALUE = """a text
of two lines"""


def one(x: int) -> int:
    """What it does,
    in two lines."""
    return x  # said
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    assert budgets.code_lines(PYTHON) == 4
    assert budgets.code_lines("// what\nint x;\n\n/* two\nlines */\nint y;\n", ".hpp") == 2


def test_a_room_that_outgrew_its_budget_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(budgets, "_lines", lambda place: [("judge", 10**6), ("new_room", 1)])
    assert budgets.main() == 1
    said = capsys.readouterr().err
    assert "harness/tile_oracle/judge: 1,000,000, but budgets.toml allows" in said
    assert "harness/tile_oracle/new_room: 1, but budgets.toml allows 0" in said
