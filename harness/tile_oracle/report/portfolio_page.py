"""The page of `tile-oracle pool portfolio --html`: efficiency over the number of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from tile_oracle.pages.charts import Line, lines
from tile_oracle.pages.render import render
from tile_oracle.report.html import PAGE
from tile_oracle.terminal.plain_text import as_text

_CLASSES = ("first", "second", "third")
_SHOWN_FROM_PERCENT = 50.0

Curves = Mapping[str, Sequence[float]]
"""Name -> efficiency of the sets of 1, 2, ... kernels, in percent."""


def portfolio_page(means: Mapping[str, Curves], p10s: Mapping[str, Curves], text: str) -> str:
    """The page as text. means, p10s: kind -> its curves, of which the first three are drawn. text: the
    tables. Foreign text is escaped."""
    kinds = [
        (
            kind,
            [
                ("Mean efficiency", _chart(means[kind], "mean efficiency, %")),
                ("10th percentile", _chart(p10s[kind], "P10 of the efficiency, %")),
            ],
        )
        for kind in means
    ]
    style = (PAGE / "report.css").read_text(encoding="utf-8")
    shown = Markup(escape(as_text(text)))
    return render(PAGE, "portfolio.html", title="Kernel portfolio", style=style, kinds=kinds, text=shown)


def _chart(curves: Curves, y_name: str) -> Markup:
    drawn = []
    for (name, values), css in zip(curves.items(), _CLASSES, strict=False):
        points = [(float(size), max(value, _SHOWN_FROM_PERCENT)) for size, value in enumerate(values, 1)]
        drawn.append(Line(name, points, css))
    most = float(max(2, *map(len, curves.values())))
    ends = (_SHOWN_FROM_PERCENT, 100.0)
    return lines(drawn, x_range=(1.0, most), y_range=ends, x_name="kernels", y_name=y_name)
