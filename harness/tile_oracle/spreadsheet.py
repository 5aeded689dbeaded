"""Cells of CSV files that people open in spreadsheets.

A spreadsheet takes a cell that begins with = + - @, a tab or a carriage return for a formula, and runs it.
Such a cell gets an apostrophe in front, unless it is a number; so does one that begins with an apostrophe, so
that `cell_text` undoes what `safe_cell` did, whatever the text was.
"""

from __future__ import annotations

import re

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def safe_cell(text: str) -> str:
    """The text as a cell that no spreadsheet runs."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def cell_text(cell: str) -> str:
    """The text of a cell that `safe_cell` made; other cells stay as they are."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell
