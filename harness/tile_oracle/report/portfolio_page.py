"""The page of `tile-oracle portfolio --html`: efficiency over the number of kernels, without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup, escape

from tile_oracle.pages import charts
from tile_oracle.pages.render import render
from tile_oracle.report.html import PAGE
from tile_oracle.terminal.plain_text import as_text

_CLASSES = ("first", "second", "third")
_SHOWN_FROM_PERCENT = 50.0


class _Summary(Protocol):
    @property
    def mean_percent(self) -> float: ...
    @property
    def p10_percent(self) -> float: ...


@dataclass(frozen=True)
class Curve:
    """The summaries of the sets of 1, 2, ... kernels on some problems."""

    name: str
    summaries: Sequence[_Summary]


def portfolio_page(
    curves: Mapping[str, Sequence[Curve]], bounds: Mapping[str, Sequence[float]], text: str
) -> str:
    """The page as text. curves, bounds: kind -> its curves, and the upper bound of the mean at every size.
    text: the tables. Foreign text is escaped."""
    style = (PAGE / "report.css").read_text(encoding="utf-8")
    kinds = [
        (
            kind,
            [
                ("Mean efficiency", _chart(_means(of_kind, bounds[kind]), "mean efficiency, %")),
                ("10th percentile", _chart(_p10s(of_kind), "P10 of the efficiency, %")),
            ],
        )
        for kind, of_kind in curves.items()
    ]
    shown = Markup(escape(as_text(text)))
    return render(PAGE, "portfolio.html", title="Kernel portfolio", style=style, kinds=kinds, text=shown)


def _means(curves: Sequence[Curve], bound: Sequence[float]) -> list[tuple[str, list[float]]]:
    values = [(one.name, [summary.mean_percent for summary in one.summaries]) for one in curves]
    return [*values[: len(_CLASSES) - 1], ("upper bound", list(bound))]


def _p10s(curves: Sequence[Curve]) -> list[tuple[str, list[float]]]:
    values = [(one.name, [summary.p10_percent for summary in one.summaries]) for one in curves]
    return values[: len(_CLASSES)]


def _chart(named: Sequence[tuple[str, Sequence[float]]], y_name: str) -> Markup:
    drawn = [
        charts.Line(
            name,
            [(float(size), max(value, _SHOWN_FROM_PERCENT)) for size, value in enumerate(values, start=1)],
            css,
        )
        for (name, values), css in zip(named, _CLASSES, strict=False)
    ]
    most = max((len(values) for _, values in named), default=1)
    return charts.lines(
        drawn,
        x_range=(1.0, float(max(most, 2))),
        y_range=(_SHOWN_FROM_PERCENT, 100.0),
        x_name="kernels",
        y_name=y_name,
    )
