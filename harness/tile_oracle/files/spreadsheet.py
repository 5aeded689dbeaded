"""Escaping of CSV cells against formula injection in spreadsheets.

A spreadsheet interprets a cell that begins with = + - @, a tab or a carriage return as a formula. Such a
cell, unless it is a number, is prefixed with an apostrophe. So is a cell that begins with an apostrophe, so
that `cell_text` is the exact inverse of `safe_cell`.
"""

from __future__ import annotations

import re

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def safe_cell(text: str) -> str:
    """Returns the text as a cell that a spreadsheet does not interpret as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def cell_text(cell: str) -> str:
    """Returns the text of a cell made by `safe_cell`; other cells are unchanged."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell
