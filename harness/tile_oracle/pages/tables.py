"""Tables as data: for HTML (parts.html, whose script sorts them), Markdown and terminals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from markupsafe import Markup

from tile_oracle.pages import words
from tile_oracle.terminal.text_table import text_table

View = dict[str, Any]
"""The data for a section's own template."""


@dataclass(frozen=True)
class Cell:
    """A cell. value: its sort key, if that is not the text. tags: (css, text) after the text. meter: percent
    of a bar behind it. note: a line below it. heat: its shade, 0 to 5. place: of the problem in the
    drill-down, which the cell opens. href: where the text leads. full: the whole name of what the text
    shortens. marks: numbers of the table's options that its row has."""

    text: object
    value: str | None = None
    css: str = ""
    tags: tuple[tuple[str, object], ...] = ()
    meter: str = ""
    note: str = ""
    heat: int | None = None
    place: int | None = None
    href: str = ""
    full: str = ""
    marks: str = ""


@dataclass(frozen=True)
class Column:
    """A column. css: num, id (of a problem), name (of a kernel), plain (one line) or detail; pages show
    ids and names in words, and themselves on hover. hint: the heading's tooltip."""

    heading: str
    css: str = ""
    hint: str = ""


Made = tuple[Column, Callable[[Any], Cell]]
"""A column, and what makes its cell from an item."""


@dataclass(frozen=True)
class Table:
    """A table. narrow: only as wide as its content. name: its id in the page. filter: what its rows are, for
    a field that hides those without some words. choices: what else its rows can be chosen by -> options, each
    with its address in the page. heading: above it."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    name: str = ""
    sortable: bool = False
    narrow: bool = False
    filter: str = ""
    choices: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ()
    heading: str = ""

    kind: ClassVar[str] = "table"
    PRINTED_ROWS: ClassVar[int] = 60

    @classmethod
    def of(cls, caption: str, items: Iterable[Any], columns: Sequence[Made], **options: Any) -> Table:
        """Returns a row for each item: columns give their cells. options: further fields."""
        rows = [[make(item) for _, make in columns] for item in items]
        return cls(caption, [column for column, _ in columns], rows, **options)

    @property
    def is_long(self) -> bool:
        """Whether only the first rows are printed."""
        return len(self.rows) > self.PRINTED_ROWS

    @property
    def titles(self) -> dict[str, str]:
        """Id of a problem -> its size in words (words.titles), of the problems that the table names."""
        places = [place for place, column in enumerate(self.columns) if column.css == "id"]
        return words.titles(str(row[place].text) for row in self.rows for place in places)

    @property
    def css(self) -> str:
        """The classes of the table."""
        kinds = (("sortable", self.sortable), ("narrow", self.narrow), ("long", self.is_long))
        return " ".join(kind for kind, on in kinds if on)

    def markdown(self, most: int = 10**9) -> str:
        """Returns the table in GitHub-flavoured Markdown, with at most `most` rows. Foreign text is
        escaped."""
        kinds = [column.css for column in self.columns]
        head = [text(column.heading) for column in self.columns]
        body = [
            [_markdown(cell, css) for cell, css in zip(row, kinds, strict=True)] for row in self.rows[:most]
        ]
        lines = [
            "| " + " | ".join(cell or " " for cell in row) + " |"
            for row in (head, ["---"] * len(head), *body)
        ]
        return "\n".join(lines) + (f"\n\nand {len(self.rows) - most:,} more" if len(self.rows) > most else "")

    def plain(self, most: int = 10**9) -> list[str]:
        """Returns the table as lines of a terminal, with at most `most` rows; none without a row."""
        if not self.rows:
            return []
        head = [column.heading for column in self.columns]
        shown, titles = self.rows[:most], self.titles
        told = [[titles.get(str(cell.text), cell.text) for cell in row] for row in shown]
        body = [[words.one_line(one, words.LONGEST) for one in row] for row in told]
        right = [place for place, column in enumerate(self.columns) if column.css == "num"]
        more = [f"and {len(self.rows) - most:,} more"] if len(self.rows) > most else []
        return [*text_table([head, *body], right_aligned=right), *more]


@dataclass(frozen=True)
class Note:
    """A paragraph. badges: (text, css) before it. scale: whether the scale of shades follows."""

    text: str
    scale: bool = False
    css: str = "note"
    badges: Sequence[tuple[str, str]] = ()

    kind: ClassVar[str] = "note"


@dataclass(frozen=True)
class Notes:
    """A list of sentences. places: their numbers, of a list that is numbered."""

    lines: Sequence[str]
    places: Sequence[int] = ()

    kind: ClassVar[str] = "notes"


@dataclass(frozen=True)
class Facts:
    """Names and their values."""

    pairs: Sequence[tuple[str, str]]

    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Figures:
    """Charts side by side, with captions."""

    charts: Sequence[tuple[str, Markup]]

    kind: ClassVar[str] = "figures"


Block = Table | Note | Notes | Facts | Figures | Markup
"""A part of a section; markup is shown as it is."""


def text_rows(rows: Iterable[Sequence[object]]) -> list[list[Cell]]:
    """Cells of texts alone."""
    return [[Cell(one) for one in row] for row in rows]


def text(foreign: object, limit: int = 400) -> str:
    """Foreign text as one escaped line of Markdown."""
    line = words.one_line(foreign, limit)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|~#!@])", r"\\\1", line)


def code(foreign: object, limit: int = 400) -> str:
    """Foreign text as a code span that fits into a table cell."""
    line = words.one_line(foreign, limit).replace("`", "'").replace("\\", "/").replace("|", "\\|")
    # HTML is plain text in a code span.
    return f"`{line}`" if line.strip() else ""


def _markdown(cell: Cell, css: str) -> str:
    shown = (code if css in ("id", "name") else text)(cell.text)
    return ": ".join([shown, *([text(cell.note)] if cell.note else [])])


def numbers(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, "num") for heading in headings]


def number(value: Any, shown: str) -> Cell:
    """Returns a number, shown as given; a missing one is a dash that sorts last."""
    return Cell("-", "") if _missing(value) else Cell(shown, f"{float(value):.9g}")


def whole(value: Any) -> Cell:
    """Returns a count."""
    return number(value, "" if _missing(value) else f"{int(value):,}")


def percent(value: Any) -> Cell:
    """Returns a share in percent."""
    return number(value, "" if _missing(value) else words.percent(value))


def tflops(value: float | None) -> Cell:
    """Returns a speed in TFLOPS."""
    return number(value, words.tflops(value))


def times(value: float | None) -> Cell:
    """Returns a ratio."""
    return number(value, words.times(value))


def _missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))
