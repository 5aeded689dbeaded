"""Charts as inline SVG, without a library or script; colours come from the page's style sheet.

Every chart is an image with a text alternative, and its parts have their values as tooltips. Sizes are in SVG
user units; a chart scales to the available width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
_MOST_POINTS = 400


@dataclass(frozen=True)
class Line:
    """One line of a chart: its name in the legend, points in data units, and the CSS class of its colour."""

    name: str
    points: Sequence[tuple[float, float]]
    css: str
    marked: bool = False


def histogram(
    values: Sequence[float], *, low: float, high: float, bins: int, x_name: str, y_name: str
) -> str:
    """A histogram of `bins` equal bins over low..high (the last one closed)."""
    counts = [0] * bins
    for value in values:
        place = int((value - low) / (high - low) * bins)
        counts[min(max(place, 0), bins - 1)] += 1
    top = _whole_ceiling(max(counts, default=1))
    x, y = _scales((low, high), (0.0, top))
    step = (high - low) / bins
    bars = []
    for place, number in enumerate(counts):
        if not number:
            continue
        left, right = x(low + place * step) + 0.75, x(low + (place + 1) * step) - 0.75
        label = f"{low + place * step:g} to {low + (place + 1) * step:g} %: {number:,}"
        bars.append(
            f'<rect class="bar" x="{left:.1f}" y="{y(number):.1f}" width="{right - left:.1f}" '
            f'height="{y(0) - y(number):.1f}"><title>{escape(label)}</title></rect>'
        )
    described = f"Histogram of {len(values):,} values: {x_name}"
    return _svg(described, _axes(x, y, (low, high), (0.0, top), x_name, y_name, whole=True) + "".join(bars))


def columns(counts: Sequence[tuple[str, int]], *, x_name: str, y_name: str) -> str:
    """A bar for each (name, count)."""
    top = _whole_ceiling(max((number for _, number in counts), default=1))
    x, y = _scales((0.0, float(len(counts))), (0.0, top))
    body = [_axes(x, y, (0.0, 0.0), (0.0, top), x_name, y_name, whole=True, x_ticks=())]
    for place, (name, number) in enumerate(counts):
        left, right = x(place + 0.12), x(place + 0.88)
        body.append(
            f'<rect class="bar" x="{left:.1f}" y="{y(number):.1f}" width="{right - left:.1f}" '
            f'height="{y(0) - y(number):.1f}"><title>{escape(f"{name}: {number:,}")}</title></rect>'
            f'<text x="{(left + right) / 2:.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle">'
            f"{escape(name)}</text>"
        )
    described = f"{y_name} by {x_name}: " + ", ".join(f"{name} {number:,}" for name, number in counts)
    return _svg(described, "".join(body))


def lines(
    drawn: Sequence[Line],
    *,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_name: str,
    y_name: str,
    logarithmic: bool = False,
    x_ticks: Sequence[float] | None = None,
) -> str:
    """Lines over common axes, with a legend if there are several. logarithmic: the y axis."""
    x, y = _scales(x_range, y_range, logarithmic=logarithmic)
    body = [_axes(x, y, x_range, y_range, x_name, y_name, logarithmic=logarithmic, x_ticks=x_ticks)]
    for line in drawn:
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in _thinned(line.points))
        body.append(f'<polyline class="line {line.css}" points="{points}"/>')
        if line.marked:
            for a, b in line.points:
                label = escape(f"{line.name}: {a:g}, {b:.1f}")
                body.append(
                    f'<circle class="dot {line.css}" cx="{x(a):.1f}" cy="{y(b):.1f}" r="3.5">'
                    f"<title>{label}</title></circle>"
                )
    described = f"{y_name} over {x_name}: " + ", ".join(line.name for line in drawn)
    return _svg(described, "".join(body)) + _legend(drawn)


def scatter(
    points: Sequence[tuple[float, float, str]], *, dots: str, limit: Line, x_name: str, y_name: str
) -> str:
    """Dots of (x, y, name) over two logarithmic axes, and one line; all values are above 0. dots: what a dot
    is, for the legend."""
    xs = [a for a, _, _ in points] + [a for a, _ in limit.points]
    ys = [b for _, b, _ in points] + [b for _, b in limit.points]
    x_range, y_range = (min(xs) / 1.1, max(xs) * 1.1), (min(ys) / 1.1, max(ys) * 1.1)
    _, y = _scales((0.0, 1.0), y_range, logarithmic=True)

    def x(value: float) -> float:
        share = math.log(value / x_range[0]) / math.log(x_range[1] / x_range[0])
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    ticks = _powers(*x_range)
    body = [_axes(x, y, x_range, y_range, x_name, y_name, logarithmic=True, x_ticks=ticks)]
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in limit.points)
    body.append(f'<polyline class="line {limit.css}" points="{line}"/>')
    for a, b, name in points:
        label = escape(f"{name}: {a:.4g}, {b:.4g}")
        body.append(
            f'<circle class="point" cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5"><title>{label}</title></circle>'
        )
    described = f"{y_name} over {x_name}: {len(points):,} problems, and the line {limit.name}"
    dot = '<circle class="point" cx="11" cy="4" r="3"/>'
    key = f'<li><svg class="key" viewBox="0 0 22 8" aria-hidden="true">{dot}</svg>{escape(dots)}</li>'
    return _svg(described, "".join(body)) + f'<ul class="legend">{key}{_entry(limit)}</ul>'


def time_bars(
    stacks: Sequence[tuple[str, str, Sequence[float]]],
    marks: Sequence[tuple[float, str]],
    *,
    rest: str,
    length: float,
    x_name: str,
    y_name: str,
) -> str:
    """Stacked bars over a time axis from 0 to `length`: (name, CSS class, percent of each bin); and marks of
    (time, name) above them. rest: what is not in the stacks, for the legend. The axis ends at 100 % or above
    the highest bar."""
    sums = [sum(parts) for parts in zip(*(values for _, _, values in stacks), strict=True)]
    top = max(100.0, math.ceil((max(sums, default=0.0) - 0.5) / 50.0) * 50.0)
    x, y = _scales((0.0, length), (0.0, top * 1.06))
    body = [_axes(x, y, (0.0, length), (0.0, top), x_name, y_name)]
    bins = len(sums)
    for place in range(bins):
        left, right, below = x(place * length / bins), x((place + 1) * length / bins), 0.0
        for name, css, values in stacks:
            if values[place] >= 0.05:
                high = below + values[place]
                body.append(
                    f'<rect class="{css}" x="{left:.1f}" y="{y(high):.1f}" width="{right - left:.2f}" '
                    f'height="{y(below) - y(high):.1f}"><title>{escape(f"{name}: {values[place]:.0f} %")}'
                    "</title></rect>"
                )
                below = high
    for at, name in marks[:_MOST_POINTS]:
        body.append(
            f'<line class="fault" x1="{x(at):.1f}" x2="{x(at):.1f}" '
            f'y1="{y(top * 1.06):.1f}" y2="{y(top):.1f}">'
            f"<title>{escape(name)}</title></line>"
        )
    described = f"{y_name} over {x_name}: " + ", ".join(name for name, _, _ in stacks)
    keys = "".join(
        '<li><svg class="key" viewBox="0 0 22 8" aria-hidden="true">'
        f'<rect class="{css}" width="22" height="8"/>'
        f"</svg>{escape(name)}</li>"
        for name, css, _ in [*stacks, (rest, "rest", ())]
    )
    if marks:
        keys += (
            '<li><svg class="key" viewBox="0 0 22 8" aria-hidden="true"><line class="fault" x1="11" x2="11" '
            f'y1="0" y2="8"/></svg>fault ({len(marks):,})</li>'
        )
    return _svg(described, "".join(body)) + f'<ul class="legend">{keys}</ul>'


def stacked_bar(parts: Sequence[tuple[str, int, str]]) -> str:
    """A stacked bar of (name, number, css class); small parts have a minimum width."""
    total = sum(number for _, number, _ in parts) or 1
    widths = [max(number / total * 100, 0.4) for _, number, _ in parts]
    scale = 100 / (sum(widths) or 1)
    left, body = 0.0, []
    for (name, number, css), width in zip(parts, widths, strict=True):
        label = escape(f"{name}: {number:,} ({100 * number / total:.1f} %)")
        body.append(
            f'<rect class="{css}" x="{left:.3f}" y="0" width="{width * scale:.3f}" height="3">'
            f"<title>{label}</title></rect>"
        )
        left += width * scale
    described = escape("Shares: " + ", ".join(f"{name} {number:,}" for name, number, _ in parts), quote=True)
    return (
        f'<svg class="stack" viewBox="0 0 100 3" preserveAspectRatio="none" role="img" '
        f'aria-label="{described}">{"".join(body)}</svg>'
    )


Scale = Callable[[float], float]


def _scales(
    x_range: tuple[float, float], y_range: tuple[float, float], *, logarithmic: bool = False
) -> tuple[Scale, Scale]:
    (x0, x1), (y0, y1) = x_range, y_range

    def x(value: float) -> float:
        return _LEFT + (value - x0) / ((x1 - x0) or 1) * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        if logarithmic:
            share = math.log(max(value, y0) / y0) / (math.log(y1 / y0) or 1)
        else:
            share = (value - y0) / ((y1 - y0) or 1)
        return HEIGHT - _BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - _TOP - _BOTTOM)

    return x, y


def _axes(
    x: Scale,
    y: Scale,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_name: str,
    y_name: str,
    *,
    logarithmic: bool = False,
    whole: bool = False,
    x_ticks: Sequence[float] | None = None,
) -> str:
    body = []
    y_ticks = _powers(*y_range) if logarithmic else _ticks(*y_range, 5, whole=whole)
    for tick in y_ticks:
        body.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y(tick) + 3.5:.1f}" text-anchor="end">{tick:,g}</text>'
        )
    for tick in _ticks(*x_range, 6) if x_ticks is None else x_ticks:
        body.append(
            f'<text x="{x(tick):.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle">{tick:,g}</text>'
        )
    base = HEIGHT - _BOTTOM
    middle = (_TOP + base) / 2
    body.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>')
    body.append(
        f'<text class="axis-name" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(x_name)}</text>"
    )
    body.append(
        f'<text class="axis-name" x="12" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 12 {middle})">'
        f"{escape(y_name)}</text>"
    )
    return "".join(body)


def _svg(described: str, body: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(described, quote=True)}">{body}</svg>'
    )


def _legend(drawn: Sequence[Line]) -> str:
    return f'<ul class="legend">{"".join(map(_entry, drawn))}</ul>' if len(drawn) > 1 else ""


def _entry(line: Line) -> str:
    """A line in the legend."""
    return (
        f'<li><svg class="key" viewBox="0 0 22 8" aria-hidden="true"><line class="line {line.css}" '
        f'x1="0" x2="22" y1="4" y2="4"/></svg>{escape(line.name)}</li>'
    )


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most _MOST_POINTS of the points, among them the first and the last."""
    if len(points) <= _MOST_POINTS:
        return points
    step = (len(points) - 1) / (_MOST_POINTS - 1)
    return [points[round(i * step)] for i in range(_MOST_POINTS)]


def _ticks(low: float, high: float, number: int, *, whole: bool = False) -> list[float]:
    """About `number` round values from low to high."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / number
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def whole_ticks(high: int) -> list[float]:
    """Round integers from 0 to `high`."""
    return _ticks(0.0, float(max(high, 1)), 6, whole=True)


def _powers(low: float, high: float) -> list[float]:
    """Round values for a logarithmic axis: 1, 2, 5, 10, 20, ..."""
    values: list[float] = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        values += [factor * 10.0**exponent for factor in (1, 2, 5)]
    values = [value for value in values if low * 0.999 <= value <= high * 1.001]
    return values if len(values) <= 8 else [value for value in values if math.log10(value) % 1 < 1e-9]


def _whole_ceiling(value: float) -> float:
    """The smallest round integer not below `value`."""
    if value <= 5:
        return float(max(math.ceil(value), 1))
    power = 10 ** math.floor(math.log10(value))
    return float(next(power * f for f in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if power * f >= value))
