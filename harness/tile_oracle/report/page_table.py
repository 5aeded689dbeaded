"""Tables of report.html as data: what the templates show and the page's script sorts by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from tile_oracle.report import wording
from tile_oracle.report.terms import anchor

View = dict[str, Any]
"""The data for a section's template."""


@dataclass(frozen=True)
class Cell:
    """A cell. value: its sort key, if that is not the text. tags: (css, text) after the text. meter: percent
    of a bar behind it. note: a line below it. heat: its shade, 0 to 10. place: of the problem in the
    drill-down, which the cell opens. linked: its kernels are in the page without a script, too. full: the
    whole name of what the text shortens. swatch: the CSS class of a colour that stands for it in a chart."""

    text: object
    value: str | None = None
    css: str = ""
    tags: tuple[tuple[str, object], ...] = ()
    meter: str = ""
    note: str = ""
    heat: int | None = None
    place: int | None = None
    linked: bool = False
    full: str = ""
    swatch: str = ""


@dataclass(frozen=True)
class Column:
    """A column. css: num, id (of a problem), name (of a kernel) or detail. hint: the heading's tooltip."""

    heading: str
    css: str = ""
    hint: str = ""

    @property
    def term(self) -> str:
        """The id of the heading's entry in the legend of terms, or ""."""
        return anchor(self.heading)


@dataclass(frozen=True)
class Table:
    """A table. narrow: only as wide as its content. name: its id in the page, for a filter."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    name: str = ""
    sortable: bool = False
    narrow: bool = False

    PRINTED_ROWS: ClassVar[int] = 60

    @property
    def is_long(self) -> bool:
        """Whether only the first rows are printed."""
        return len(self.rows) > self.PRINTED_ROWS

    @property
    def css(self) -> str:
        """The classes of the table."""
        kinds = (("sortable", self.sortable), ("narrow", self.narrow), ("long", self.is_long))
        return " ".join(kind for kind, on in kinds if on)


def numbers(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, "num") for heading in headings]


def number(value: Any, shown: str) -> Cell:
    """A number, shown as given; a missing one is a dash that sorts last."""
    if _missing(value):
        return Cell("-", "")
    return Cell(shown, f"{float(value):.9g}")


def whole(value: Any) -> Cell:
    """A count."""
    return number(value, "" if _missing(value) else f"{int(value):,}")


def percent(value: Any) -> Cell:
    """A share in percent."""
    return number(value, "" if _missing(value) else wording.percent(value))


def tflops(value: float | None) -> Cell:
    """A speed in TFLOPS."""
    return number(value, wording.tflops(value))


def times(value: float | None) -> Cell:
    """A ratio."""
    return number(value, wording.times(value))


def _missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))
