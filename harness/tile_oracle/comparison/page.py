"""A comparison as one static page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup, escape

from tile_oracle.comparison.compare import OUTCOMES, SLOWER, Comparison, ProblemChange
from tile_oracle.comparison.wording import (
    HEADINGS,
    change_text,
    changed_rows,
    facts,
    lists,
)
from tile_oracle.static_page import render

_TEMPLATES = Path(__file__).with_name("page")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 280, 82, 10, 10, 30
_LEAST = 99.9
"""The greatest decrease that is drawn, in percent; nothing takes no time at all."""
_CSS = {"slower": "bad", "faster": "good", "cannot tell": "open", "same": "plain-dot"}
_MOST = 500
_CLASSES = {
    "problem": "id",
    "such as": "id",
    "status": "plain",
    **dict.fromkeys(("change", "95 % interval", "old, µs", "new, µs", "pairs"), "num"),
}
"""Heading -> the CSS class of its column; kernels otherwise."""
_TICK_ROOM = 18
_TICKS = tuple(factor * 10.0**power for power in range(6, -3, -1) for factor in (5, 2, 1))
"""Sizes of changes, in percent, that an axis may name, largest first."""


def comparison_html(comparison: Comparison) -> str:
    """The page as text."""
    tables: list[tuple[str, Sequence[str], list[list[str]]]] = [
        (outcome, HEADINGS, changed_rows(comparison.with_outcome(outcome))) for outcome in OUTCOMES
    ]
    tables += lists(comparison)
    return render(
        _TEMPLATES,
        "comparison.html",
        title=f"{comparison.new.name} against {comparison.old.name}",
        counts=[(outcome, comparison.counts[outcome], _CSS[outcome]) for outcome in OUTCOMES],
        facts=facts(comparison, outcomes=False),
        by=comparison.by,
        margin=f"{comparison.margin_percent:g}",
        chart=_chart(comparison.problems, comparison.margin_percent),
        tables=[
            {
                "id": f"list-{place}",
                "title": f"{name[:1].upper()}{name[1:]}",
                "columns": [(heading, _CLASSES.get(heading, "name")) for heading in headings],
                "count": len(rows),
                "rows": rows[:_MOST],
            }
            for place, (name, headings, rows) in enumerate(tables)
            if rows
        ],
    )


def _chart(problems: Sequence[ProblemChange], margin: float) -> Markup:
    """Every problem's change with its interval, sorted by change."""
    if not problems:
        return Markup("")
    ordered = sorted(problems, key=lambda one: one.change.percent)
    # One interval that is far wider than the others does not set the scale.
    nine_tenths = len(ordered) * 9 // 10
    most = max(
        2 * margin, ordered[-1].change.percent * 1.1, sorted(one.change.high for one in ordered)[nine_tenths]
    )
    least = max(
        2 * margin, -ordered[0].change.percent * 1.1, sorted(-one.change.low for one in ordered)[nine_tenths]
    )

    def x(at: float) -> float:
        return _LEFT + (at + 0.5) / len(ordered) * (_WIDTH - _LEFT - _RIGHT)

    least = min(least, _LEAST)
    top, bottom = math.log1p(most / 100), math.log1p(-least / 100)

    def y(percent: float) -> float:
        """The axis is logarithmic in the ratio of times: twice as slow is as far as twice as fast."""
        share = (top - math.log1p(min(max(percent, -least), most) / 100)) / (top - bottom)
        return _TOP + share * (_HEIGHT - _TOP - _BOTTOM)

    body = [
        f'<rect class="margin" x="{_LEFT}" width="{_WIDTH - _LEFT - _RIGHT}" y="{y(margin):.1f}" '
        f'height="{y(-margin) - y(margin):.1f}"/>'
    ]
    for tick in _ticks(least, most, y):
        at, said = y(tick), f"{tick:+,g} %" if tick else "0 %"
        body.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{said}</text>'
        )
    for place, one in enumerate(ordered):
        said = f"{one.problem}: {change_text(one.change)}, {one.outcome}"
        highest, lowest = y(one.change.high), y(one.change.low)
        body.append(
            f'<g class="{_CSS[one.outcome]}"><title>{escape(said)}</title><line class="whisker" '
            f'x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{lowest:.1f}" y2="{highest:.1f}"/>'
            f'<circle class="change" cx="{x(place):.1f}" cy="{y(one.change.percent):.1f}" r="2.4"/></g>'
        )
    body.append(
        f'<text class="axis-name" x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{len(ordered):,} problems, in order of their change</text>"
        f'<text class="axis-name" x="12" y="{(_TOP + _HEIGHT - _BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {(_TOP + _HEIGHT - _BOTTOM) / 2})">change of time; up is {SLOWER}</text>'
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Change of time of {len(ordered)} problems with intervals">{"".join(body)}</svg>'
    )


def _ticks(least: float, most: float, y: Callable[[float], float]) -> list[float]:
    """Changes that the axis names: 0 and round ones within its ends, as many as have room."""
    kept = [0.0]
    for size in _TICKS:
        for tick in (size, -size):
            if -least <= tick <= most and min(abs(y(tick) - y(other)) for other in kept) >= _TICK_ROOM:
                kept.append(tick)
    return sorted(kept)
