"""Charts of figures over runs, as inline SVG: values, levels of steps, and marks where something changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 480, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 16, 26
_MOST_DOTS, _LAST_DOTS = 250, 20
_MARK_ROOM = 20
"""Two marks that are closer have one number; the list below the charts has all."""

Scale = Callable[[float], float]


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
    title: str, drawn: Sequence[Drawn], points: Sequence[Point], days: Sequence[str], marks: dict[int, str]
) -> Markup:
    """A chart over the runs, equally spaced. marks: run -> what changed there."""
    known = [value for line in drawn for value in line.values if value is not None]
    if not known:
        return Markup("")
    low, high = _range(min(known), max(known))
    count = len(days)

    def x(at: float) -> float:
        return _LEFT + (at + 0.5) / count * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (HEIGHT - _TOP - _BOTTOM)

    body = [_axes(low, high, days, x, y)]
    named = -math.inf
    for place, (at, text) in enumerate(marks.items(), 1):
        body.append(
            f'<g><title>{escape(text)}</title><line class="mark" x1="{x(at):.1f}" x2="{x(at):.1f}" '
            f'y1="{_TOP}" '
            f'y2="{HEIGHT - _BOTTOM}"/><path class="mark-head" d="M{x(at) - 4:.1f} {_TOP - 8}h8l-4 7z"/>'
        )
        if x(at) - named > _MARK_ROOM:
            named = x(at)
            body.append(f'<text class="mark-name" x="{named + 6:.1f}" y="{_TOP - 1}">{place}</text>')
        body.append("</g>")
    for place, line in enumerate(drawn, 1):
        css = f"c{place}" + (" dense" if count > _MOST_DOTS else "")
        body.append(_polylines(line.values, css, x, y))
        for first, last, level in line.levels:
            body.append(
                f'<line class="level" x1="{x(first - 0.4):.1f}" x2="{x(last + 0.4):.1f}" '
                f'y1="{y(level):.1f}" y2="{y(level):.1f}"/>'
            )
        # More dots would cover each other: then only the newest runs have one. The table has all links.
        for at in range(0 if count <= _MOST_DOTS else count - _LAST_DOTS, count):
            value = line.values[at]
            if value is not None:
                body.append(_dot(line.name, value, place, points[at], x(at), y(value)))
    described = f"{title} of {count} runs: " + ", ".join(
        f"{line.name} last {_last(line.values):.6g}"
        for line in drawn
        if any(v is not None for v in line.values)
    )
    legend = "".join(
        f'<li><svg class="key" viewBox="0 0 22 8" aria-hidden="true"><line class="line c{place}" '
        f'x1="0" x2="22" y1="4" y2="4"/></svg>{escape(line.name)}</li>'
        for place, line in enumerate(drawn, 1)
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{escape(described)}">'
        f"{''.join(body)}</svg>" + (f'<ul class="legend">{legend}</ul>' if len(drawn) > 1 else "")
    )


def _last(values: Sequence[float | None]) -> float:
    return next(value for value in reversed(values) if value is not None)


def _dot(name: str, value: float, place: int, point: Point, x: float, y: float) -> str:
    css = f"dot c{place}" + (" partial" if point.partial else "")
    title = escape(f"{name} {value:.6g}, {point.text}")
    dot = f'<circle class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"><title>{title}</title></circle>'
    return f'<a href="{escape(point.link)}">{dot}</a>' if point.link else dot


def _polylines(values: Sequence[float | None], css: str, x: Scale, y: Scale) -> str:
    parts: list[str] = []
    points: list[str] = []
    for at, value in enumerate((*values, None)):
        if value is not None:
            points.append(f"{x(at):.1f},{y(value):.1f}")
        elif points:
            parts.append(f'<polyline class="line {css}" points="{" ".join(points)}"/>')
            points = []
    return "".join(parts)


def _axes(low: float, high: float, days: Sequence[str], x: Scale, y: Scale) -> str:
    ticks = _ticks(low, high)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    body = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y(tick) + 3.5:.1f}" text-anchor="end">{_tick(tick, digits)}</text>'
        for tick in ticks
    ]
    base = HEIGHT - _BOTTOM
    body.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>')
    parts = 3 if len(days) > 8 else 1
    shown = sorted({round(i * (len(days) - 1) / parts) for i in range(parts + 1)})
    for at in shown:
        anchor = "start" if at == 0 and len(days) > 1 else "end" if at == len(days) - 1 and at else "middle"
        body.append(f'<text x="{x(at):.1f}" y="{base + 15}" text-anchor="{anchor}">{escape(days[at])}</text>')
    return "".join(body)


def _tick(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if digits <= 4 else f"{value:.3g}"


def _range(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis: some room around the values, but none above 100 % where no value is there."""
    room = (high - low) * 0.08 or max(abs(high) * 0.1, 1e-6)
    return low - room, min(high + room, 100.0) if high <= 100.0 else high + room


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
