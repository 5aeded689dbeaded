"""Charts as inline SVG, without a library or script; colours come from the page's style sheet.

Every chart is an image with a text alternative, and its parts have their values as tooltips. Sizes are in SVG
user units; a chart scales to the available width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

WIDTH, HEIGHT = 480, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a chart: its name in the legend, points in data units, and the CSS class of its colour."""

    name: str
    points: Sequence[Point]
    css: str


@dataclass(frozen=True)
class Scale:
    """One axis: data units from `low` to `high` -> SVG units from `start` to `end`. Values beyond an end are
    drawn on it."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        if self.logarithmic:
            share = math.log(max(value, self.low) / self.low) / (math.log(self.high / self.low) or 1)
        else:
            share = (value - self.low) / ((self.high - self.low) or 1)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, number: int) -> list[float]:
        """About `number` round values."""
        return powers(self.low, self.high) if self.logarithmic else ticks(self.low, self.high, number)


class Plot:
    """A chart that is being drawn: two scales, and the SVG elements so far."""

    def __init__(
        self,
        x: Point,
        y: Point,
        *,
        logarithmic: str = "",
        size: tuple[int, int] = (WIDTH, HEIGHT),
        margins: tuple[int, int, int, int] = (_LEFT, _RIGHT, _TOP, _BOTTOM),
    ) -> None:
        """x, y: the ranges in data units. logarithmic: the axes that are, "x", "y" or "xy". margins: left,
        right, top and bottom."""
        self.width, self.height = size
        self.left, right, self.top, bottom = margins
        self.right, self.base = self.width - right, self.height - bottom
        self.x = Scale(*x, self.left, self.right, "x" in logarithmic)
        self.y = Scale(*y, self.base, self.top, "y" in logarithmic)
        self._body: list[str] = []

    def add(self, name: str, *, title: str = "", inside: str = "", **attributes: Any) -> None:
        """Adds an element. title: its tooltip. Attributes are named css for class and with _ for -; numbers
        are rounded."""
        self._body.append(element(name, title=title, inside=inside, **attributes))

    def rule(self, css: str, y: float) -> None:
        """A line across the chart, y in SVG units."""
        self.add("line", css=css, x1=self.left, x2=self.right, y1=y, y2=y)

    def text(self, x: float, y: float, said: str, anchor: str = "middle", **attributes: Any) -> None:
        """A text; x, y in SVG units."""
        self.add("text", x=x, y=y, text_anchor=anchor, inside=escape(said), **attributes)

    def axes(
        self,
        x_name: str = "",
        y_name: str = "",
        *,
        x_ticks: Iterable[float] | None = None,
    ) -> None:
        """Grid, numbers and names of both axes."""
        for tick in self.y.ticks(5):
            self.rule("grid", self.y(tick))
            self.text(self.left - 6, self.y(tick) + 3.5, f"{tick:,g}", "end")
        for tick in self.x.ticks(6) if x_ticks is None else x_ticks:
            self.text(self.x(tick), self.base + 15, f"{tick:,g}")
        self.rule("axis", self.base)
        middle = (self.top + self.base) / 2
        if x_name:
            self.text((self.left + self.right) / 2, self.height - 6, x_name, css="axis-name")
        if y_name:
            self.text(12, middle, y_name, css="axis-name", transform=f"rotate(-90 12 {middle:g})")

    def line(self, css: str, points: Sequence[Point]) -> None:
        """A line through points."""
        shown = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        self.add("polyline", css=f"line {css}", points=shown)

    def dot(self, css: str, at: Point, r: float, title: str, link: str = "") -> None:
        """A dot with a tooltip, which may lead elsewhere."""
        made = element("circle", css=css, cx=self.x(at[0]), cy=self.y(at[1]), r=r, title=title)
        self._body.append(element("a", href=link, inside=made) if link else made)

    def svg(self, described: str, role: str = "img") -> Markup:
        """Returns the chart with its text alternative."""
        box = f"0 0 {self.width} {self.height}"
        body = Markup("".join(self._body))
        return element("svg", css="chart", viewBox=box, role=role, aria_label=described, inside=body)


def element(name: str, *, title: str = "", inside: str = "", **attributes: Any) -> Markup:
    """Returns an SVG element, as `Plot.add` describes it. inside: its content as markup."""
    said = "".join(
        f' {"class" if key == "css" else key.replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
    )
    content = (f"<title>{escape(title)}</title>" if title else "") + inside
    return Markup(f"<{name}{said}>{content}</{name}>" if content or name == "svg" else f"<{name}{said}/>")


def _attribute(value: object) -> str:
    return f"{round(value, 1):g}" if isinstance(value, float) else str(escape(str(value)))


def legend(keys: Iterable[tuple[str, Markup]]) -> Markup:
    """Returns a list of names and their keys, SVG of 22 x 8."""
    entries = [
        element(
            "li",
            inside=element("svg", css="key", viewBox="0 0 22 8", aria_hidden="true", inside=key)
            + escape(name),
        )
        for name, key in keys
    ]
    return element("ul", css="legend", inside=Markup("").join(entries))


def line_key(css: str) -> Markup:
    """Returns the key of a line."""
    return element("line", css=f"line {css}", x1=0, x2=22, y1=4, y2=4)


def dot_key(css: str) -> Markup:
    """Returns the key of a dot."""
    return element("circle", css=css, cx=11, cy=4, r=3)


def scatter(
    points: Sequence[tuple[float, float, str]], *, dots: str, limit: Line, x_name: str, y_name: str
) -> Markup:
    """Dots of (x, y, name) over two logarithmic axes, and one line; all values are above 0. dots: what a dot
    is, for the legend."""
    xs = [a for a, _, _ in points] + [a for a, _ in limit.points]
    ys = [b for _, b, _ in points] + [b for _, b in limit.points]
    plot = Plot((min(xs) / 1.1, max(xs) * 1.1), (min(ys) / 1.1, max(ys) * 1.1), logarithmic="xy")
    plot.axes(x_name, y_name)
    plot.line(limit.css, limit.points)
    for a, b, name in points:
        plot.dot("point", (a, b), 2.5, f"{name}: {a:.4g}, {b:.4g}")
    described = f"{y_name} over {x_name}: {len(points):,} problems, and the line {limit.name}"
    return plot.svg(described) + legend([(dots, dot_key("point")), (limit.name, line_key(limit.css))])


def ticks(low: float, high: float, number: int) -> list[float]:
    """About `number` round values from low to high."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / number
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def powers(low: float, high: float) -> list[float]:
    """Round values for a logarithmic axis: 1, 2, 5, 10, 20, ..."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5)]
    values = [value for value in values if low * 0.999 <= value <= high * 1.001]
    return values if len(values) <= 8 else [value for value in values if math.log10(value) % 1 < 1e-9]
