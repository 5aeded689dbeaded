"""A comparison as one static page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from tile_oracle.comparison.compare import OUTCOMES, SLOWER, Comparison, ProblemChange
from tile_oracle.comparison.wording import (
    HEADINGS,
    change_text,
    changed_rows,
    facts,
    failing_rows,
    short_names,
)
from tile_oracle.static_page import render

_TEMPLATES = Path(__file__).with_name("page")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 260, 56, 10, 10, 30
_CSS = {"slower": "bad", "faster": "good", "cannot tell": "open", "same": "plain-dot"}
_MOST = 500


def comparison_html(comparison: Comparison) -> str:
    """The page as text."""
    tables: list[tuple[str, Sequence[str], list[list[str]]]] = [
        (outcome, HEADINGS, changed_rows(comparison.with_outcome(outcome))[:_MOST]) for outcome in OUTCOMES
    ]
    moved = ("problem", "from", "to")
    tables += [
        ("newly failing kernels", ("kernel", "status", "pairs", "such as"), failing_rows(comparison)),
        ("oracles changed", moved, [[p, *short_names(*both)] for p, *both in comparison.oracles_changed]),
        ("picks changed", moved, [[p, *short_names(*both)] for p, *both in comparison.picks_changed]),
        ("kernels gained", ("kernel",), [[name] for name in comparison.gained or ()]),
        ("kernels lost", ("kernel",), [[name] for name in comparison.lost or ()]),
    ]
    return render(
        _TEMPLATES,
        "comparison.html",
        title=f"{comparison.old.name} and {comparison.new.name}",
        counts=[(outcome, comparison.counts[outcome], _CSS[outcome]) for outcome in OUTCOMES],
        facts=facts(comparison),
        by=comparison.by,
        margin=f"{comparison.margin_percent:g}",
        chart=_chart(comparison.problems, comparison.margin_percent),
        tables=[table for table in tables if table[2]],
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

    def y(percent: float) -> float:
        share = (most - min(max(percent, -least), most)) / (most + least)
        return _TOP + share * (_HEIGHT - _TOP - _BOTTOM)

    body = [
        f'<rect class="margin" x="{_LEFT}" width="{_WIDTH - _LEFT - _RIGHT}" y="{y(margin):.1f}" '
        f'height="{y(-margin) - y(margin):.1f}"/>'
    ]
    reach = (most + least) / 2
    step = 10.0 ** math.floor(math.log10(reach))
    step = step if reach / step >= 2 else step / 2
    for tick in range(-int(least / step), int(most / step) + 1):
        at, said = y(tick * step), f"{tick * step:+g} %" if tick else "0 %"
        body.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{said}</text>'
        )
    for place, one in enumerate(ordered):
        said = f"{one.problem}: {change_text(one.change)}, {one.outcome}"
        top, bottom = y(one.change.high), y(one.change.low)
        body.append(
            f'<g class="{_CSS[one.outcome]}"><title>{escape(said)}</title><line class="whisker" '
            f'x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{bottom:.1f}" y2="{top:.1f}"/>'
            f'<circle class="change" cx="{x(place):.1f}" cy="{y(one.change.percent):.1f}" r="2.4"/></g>'
        )
    body.append(
        f'<text class="axis-name" x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{len(ordered)} problems, by change of time; up is {SLOWER}</text>"
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Change of time of {len(ordered)} problems with intervals">{"".join(body)}</svg>'
    )
