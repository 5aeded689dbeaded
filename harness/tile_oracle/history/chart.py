"""Charts of figures over runs: values, levels of steps, and marks where something changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from tile_oracle.pages.charts import Plot, legend, line_key

_MOST_DOTS, _LAST_DOTS = 250, 20
_MARK_ROOM = 20
"""Two marks that are closer have one number; the list below the charts has all."""


@dataclass(frozen=True)
class Drawn:
    """One line. values: one for each run, None where unknown. levels: (first run, last run, level)."""

    name: str
    values: Sequence[float | None]
    levels: Sequence[tuple[int, int, float]] = ()


@dataclass(frozen=True)
class Point:
    """What a run's dot says and where it leads. partial: the run is not complete."""

    text: str
    link: str
    partial: bool


def history_chart(
    title: str, drawn: Sequence[Drawn], points: Sequence[Point], days: Sequence[str], marks: Mapping[int, str]
) -> Markup:
    """Returns a chart over the runs, equally spaced. marks: run -> what changed there. Empty without a
    value."""
    known = [value for line in drawn for value in line.values if value is not None]
    if not known:
        return Markup("")
    count = len(days)
    plot = Plot(
        (-0.5, count - 0.5), _range(min(known), max(known)), size=(480, 220), margins=(52, 12, 16, 26)
    )
    plot.axes(x_ticks=())
    _name_days(plot, days)
    _add_marks(plot, marks)
    for place, line in enumerate(drawn, 1):
        css = f"c{place}" + (" dense" if count > _MOST_DOTS else "")
        for is_known, part in groupby(enumerate(line.values), lambda one: one[1] is not None):
            if is_known:
                plot.line(css, [(at, value) for at, value in part if value is not None])
        for first, last, level in line.levels:
            left, right, y = plot.x(first - 0.4), plot.x(last + 0.4), plot.y(level)
            plot.add("line", css="level", x1=left, x2=right, y1=y, y2=y)
        # More dots would cover each other: then only the newest runs have one. The table has all links.
        for at in range(0 if count <= _MOST_DOTS else count - _LAST_DOTS, count):
            value, point = line.values[at], points[at]
            if value is not None:
                css = f"dot c{place}" + (" partial" if point.partial else "")
                plot.dot(css, (at, value), 2.6, f"{line.name} {value:.6g}, {point.text}", point.link)
    last_ones = [(line.name, [value for value in line.values if value is not None][-1:]) for line in drawn]
    described = ", ".join(f"{name} last {last[0]:.6g}" for name, last in last_ones if last)
    keys = [(line.name, line_key(f"c{place}")) for place, line in enumerate(drawn, 1)]
    chart = plot.svg(f"{title} of {count} runs: {described}", role="group")
    return chart + (legend(keys) if len(drawn) > 1 else "")


def _name_days(plot: Plot, days: Sequence[str]) -> None:
    parts = 3 if len(days) > 8 else 1
    for at in sorted({round(i * (len(days) - 1) / parts) for i in range(parts + 1)}):
        anchor = "start" if at == 0 and len(days) > 1 else "end" if at == len(days) - 1 and at else "middle"
        plot.text(plot.x(at), plot.base + 15, days[at], anchor)


def _add_marks(plot: Plot, marks: Mapping[int, str]) -> None:
    named = -math.inf
    for place, (at, text) in enumerate(marks.items(), 1):
        x = plot.x(at)
        plot.add("line", css="mark", x1=x, x2=x, y1=plot.top, y2=plot.base, title=text)
        plot.add("path", css="mark-head", d=f"M{x - 4:.1f} {plot.top - 8}h8l-4 7z", title=text)
        if x - named > _MARK_ROOM:
            named = x
            plot.text(x + 6, plot.top - 1, str(place), "start", css="mark-name")


def _range(low: float, high: float) -> tuple[float, float]:
    """Returns the ends of an axis: some room around the values, but none above 100 % where no value is
    there."""
    room = (high - low) * 0.08 or max(abs(high) * 0.1, 1e-6)
    return low - room, min(high + room, 100.0) if high <= 100.0 else high + room
