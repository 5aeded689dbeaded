"""Tables as text with aligned columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(rows: Sequence[Sequence[str]], right_aligned: Iterable[int]) -> list[str]:
    """Returns one line per row, with columns two spaces apart. right_aligned: indices of right-aligned
    columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = set(right_aligned)
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def first_few(lines: Sequence[str], most: int, what: str = "more") -> list[str]:
    """Returns the first lines, and how many more there are."""
    left = len(lines) - most
    return [*lines[:most], *([f"and {left:,} {what}"] if left > 0 else [])]
