"""A comparison as one static page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup

from tile_oracle.comparison.compare import OUTCOMES, SLOWER, Comparison, ProblemChange
from tile_oracle.comparison.wording import change_text, changed_table, facts, lists
from tile_oracle.pages.charts import Plot, Scale, dot_key, element, legend
from tile_oracle.pages.render import page
from tile_oracle.pages.tables import Block, Facts, Note

_LEAST = 99.9
"""The greatest decrease that is drawn, in percent; nothing takes no time at all."""
_CSS = {"slower": "bad", "faster": "good", "cannot tell": "open", "same": "plain-dot"}
_MOST = 500
_TICK_ROOM = 18
_TICKS = tuple(factor * 10.0**power for power in range(6, -3, -1) for factor in (5, 2, 1))
"""Sizes of changes, in percent, that an axis may name, largest first."""


def comparison_html(comparison: Comparison, first: Sequence[tuple[str, str]] = ()) -> str:
    """Returns the page as text. first: (name, value) of what is said before all other facts."""
    margin = f"{comparison.margin_percent:g}"
    counts = [(f"{comparison.counts[one]:,} {one}", _CSS[one]) for one in OUTCOMES]
    said = (
        f"Time of each problem's {comparison.by}, new against old, with 95 % intervals. Same: the interval "
        f"lies within {margin} %. Slower, faster: it excludes 0, also after the correction for the number of "
        "problems. Cannot tell: otherwise."
    )
    chart = _chart(comparison.problems, comparison.margin_percent)
    sections: list[tuple[str, str, Sequence[Block]]] = [("chart", "Change of every problem", [chart])]
    for place, one in enumerate([changed_table(comparison, each) for each in OUTCOMES] + lists(comparison)):
        left = [Note(f"The first {_MOST} are listed; --json has all.")] if len(one.rows) > _MOST else []
        parts = (f"list-{place}", f"{one.caption.capitalize()} ({len(one.rows):,})")
        sections += [(*parts, [replace(one, rows=one.rows[:_MOST]), *left])] if one.rows else []
    return page(
        f"{comparison.new.name} against {comparison.old.name}",
        [Note("", badges=counts), Note(said), Facts([*first, *facts(comparison, outcomes=False)])],
        sections if chart else sections[1:],
    )


def _chart(problems: Sequence[ProblemChange], margin: float) -> Markup:
    """Returns every problem's change with its interval, sorted by change. The axis is logarithmic in the
    ratio of
    times: twice as slow is as far as twice as fast."""
    if not problems:
        return Markup("")
    ordered = sorted(problems, key=lambda one: one.change.percent)
    # One interval that is far wider than the others does not set the scale.
    nine_tenths = len(ordered) * 9 // 10
    highs, lows = sorted(one.change.high for one in ordered), sorted(-one.change.low for one in ordered)
    most = max(2 * margin, ordered[-1].change.percent * 1.1, highs[nine_tenths])
    least = min(max(2 * margin, -ordered[0].change.percent * 1.1, lows[nine_tenths]), _LEAST)
    ends = (1 - least / 100, 1 + most / 100)
    size, margins = (960, 280), (82, 10, 10, 30)
    plot = Plot((-0.5, len(ordered) - 0.5), ends, logarithmic="y", size=size, margins=margins)
    low, high = plot.y(1 - margin / 100), plot.y(1 + margin / 100)
    plot.add("rect", css="margin", x=plot.left, y=high, width=plot.right - plot.left, height=low - high)
    named = [(1 + tick / 100, f"{tick:+,g} %" if tick else "0 %") for tick in _ticks(least, most, plot.y)]
    names = (f"{len(ordered):,} problems, in order of their change", f"change of time; up is {SLOWER}")
    plot.axes(*names, x_ticks=(), y_ticks=named)
    for place, one in enumerate(ordered):
        title, css, x = (
            f"{one.problem}: {change_text(one.change)}, {one.outcome}",
            _CSS[one.outcome],
            plot.x(place),
        )
        low, middle, high = (1 + at / 100 for at in (one.change.low, one.change.percent, one.change.high))
        plot.add("line", css=f"whisker {css}", x1=x, x2=x, y1=plot.y(low), y2=plot.y(high), title=title)
        plot.dot(f"change {css}", (place, middle), 2.4, title)
    keys = [(outcome, dot_key(_CSS[outcome])) for outcome in OUTCOMES]
    said = (("vertical line: 95 % interval", Markup("")), (f"grey band: within {margin:g} %", Markup("")))
    chart = plot.svg(f"Change of time of {len(ordered)} problems with intervals") + legend([*keys, *said])
    about = {"role": "group", "aria_label": "Change of every problem"}
    return element("figure", css="wide", tabindex=0, inside=chart, **about)


def _ticks(least: float, most: float, y: Scale) -> list[float]:
    """Changes that the axis names: 0 and round ones within its ends, as many as have room."""
    kept = [0.0]
    for size in _TICKS:
        for tick in (size, -size):
            place = y(1 + tick / 100) if -least <= tick <= most else None
            if place is not None and min(abs(place - y(1 + one / 100)) for one in kept) >= _TICK_ROOM:
                kept.append(tick)
    return sorted(kept)
