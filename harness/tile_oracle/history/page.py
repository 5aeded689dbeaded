"""The history as one static page: charts, steps, runs and changed picks of each group."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from tile_oracle.comparison.wording import short_names
from tile_oracle.history.chart import Drawn, Point, history_chart
from tile_oracle.history.group import FIGURES, ORACLE, PICK, Change, Figure, Group, Trend
from tile_oracle.history.runs import Runs
from tile_oracle.history.summary import REPORT, RunSummary
from tile_oracle.history.wording import day, headings, mark_text, no_step, run_rows, state_line, trend_rows
from tile_oracle.pages.render import render
from tile_oracle.pages.tables import Cell, Column, Table, numbers
from tile_oracle.pages.words import change_percent, one_line

_TEMPLATES = Path(__file__).with_name("page")
_MOST_PROBLEMS = 200
_MOST_MARKS = 60
_TOGETHER = ("mean", "median", "p10", "worst")
_STATES = {"passed": "good", "failed": "bad"}


def history_html(runs: Runs, groups: Sequence[Group], page: Path) -> str:
    """Returns the page as text. page: where it will lie, for links to the runs' reports."""
    return render(
        _TEMPLATES,
        "history.html",
        title=f"History of {runs.root.name}",
        root=runs.root,
        count=len(runs.runs),
        notes=list(runs.notes),
        groups=[_view(group, runs.root, page.resolve().parent, place) for place, group in enumerate(groups)],
    )


def _view(group: Group, root: Path, home: Path, place: int) -> dict[str, Any]:
    links = [_link(run, root, home) for run in group.runs]
    last = group.runs[-1]
    return {
        "id": f"group-{place}",
        "title": group.title,
        "said": state_line(group),
        "state": last.state or "unknown",
        "css": _css(last),
        "steps": _steps(group),
        "no_step": no_step(group),
        "charts": _charts(group, links) if len(group.runs) > 1 else [],
        "marks": [
            (place, day(group.runs[at].when), text)
            for place, (at, text) in reversed(list(enumerate(_marks(group).items(), 1)))
        ][:_MOST_MARKS],
        "runs": _runs(group, links),
        "problems": _problems(group),
        "problems_left": max(0, len({one.problem for one in group.changes}) - _MOST_PROBLEMS),
    }


def _css(run: RunSummary) -> str:
    return _STATES.get(run.state, "open")


def _steps(group: Group) -> Table:
    rows = []
    for row in trend_rows(group):
        css = "open" if row.kind == "open" else "good" if row.better else "bad"
        figures = [Cell(text) for text in (row.figure, row.before, row.after, row.change, row.interval)]
        last = [Cell(row.when, note=row.between), Cell(f"{row.p_value:.3f}"), Cell(row.changed)]
        rows.append([Cell(row.kind, css=f"badge {css}"), *figures, *last])
    columns = [
        *(Column("outcome"), Column("figure", "plain")),
        *numbers("before", "after", "change", "95 % interval"),
        *(Column("from, UTC", "plain"), Column("p", "num"), Column("changed there")),
    ]
    return Table(f"Steps of {group.title}", columns, rows, narrow=True)


def _runs(group: Group, links: Sequence[str]) -> Table:
    rows = [
        [Cell(when), Cell(name, href=link), Cell(state, css=f"badge {_css(run)}"), *map(Cell, rest)]
        for (when, name, state, *rest), link, run in zip(
            run_rows(group), reversed(links), reversed(group.runs), strict=True
        )
    ]
    names = headings(group)
    columns = [*(Column(name, "plain") for name in names[:3]), *numbers(*names[3:])]
    return Table(f"Runs of {group.title}", columns, rows)


def _link(run: RunSummary, root: Path, home: Path) -> str:
    if not run.folder or not run.has_report:
        return ""
    return quote(os.path.relpath(root / run.folder / REPORT, home))


def _charts(group: Group, links: Sequence[str]) -> list[tuple[str, Markup]]:
    """(caption, chart) of the efficiencies together and of each other figure."""
    marks = _marks(group)
    points = [
        Point(f"{day(run.when)}, {one_line(run.name)}", link, not run.complete)
        for run, link in zip(group.runs, links, strict=True)
    ]
    one_day = len({run.when[:10] for run in group.runs}) == 1
    days = [run.when[11:16] if one_day else run.when[:10] for run in group.runs]
    levels = {trend.figure.name: _levels(trend) for trend in group.trends}
    lines = {
        figure.name: Drawn(figure.title, group.values(figure), levels.get(figure.name, ()))
        for figure in FIGURES
    }
    drawn = [
        ("Efficiency, % of the oracle", [lines[name] for name in _TOGETHER]),
        *(
            (_caption(group, figure), [line])
            for figure, line in zip(FIGURES, lines.values(), strict=True)
            if figure.name not in _TOGETHER[1:]
        ),
    ]
    charts = [(caption, history_chart(caption, lines, points, days, marks)) for caption, lines in drawn]
    return [(caption, chart) for caption, chart in charts if chart]


def _caption(group: Group, figure: Figure) -> str:
    title = group.hours if figure.name == "device_hours" else figure.title
    return title[:1].upper() + title[1:] + (", %" if figure.unit == "%" else "")


def _marks(group: Group) -> dict[int, str]:
    """Run -> what changed there."""
    found: dict[int, list[str]] = defaultdict(list)
    for mark in group.marks:
        found[mark.at].append(mark_text(mark))
    return {at: "; ".join(texts) for at, texts in found.items()}


def _levels(trend: Trend) -> list[tuple[int, int, float]]:
    """Returns the levels between the steps; none without a step."""
    if not trend.steps:
        return []
    at, starts = trend.at, [0, *(step.at for step in trend.steps)]
    ends = [*starts[1:], len(at)]
    heights = [trend.steps[0].before, *(step.after for step in trend.steps)]
    return [
        (at[start], at[end - 1], height) for start, end, height in zip(starts, ends, heights, strict=True)
    ]


_CHANGED = (
    Column("problem", "id"),
    Column("what"),
    *(Column("from", "name"), Column("to", "name")),
    *numbers("efficiency, %", "oracle's TFLOPS, change"),
)


def _problems(group: Group) -> Table:
    """Returns the problems that changed pick or oracle, those of the newest change first."""
    changes: dict[str, list[Change]] = defaultdict(list)
    for change in group.changes:
        changes[change.problem].append(change)
    rows = []
    for problem in sorted(changes, key=lambda problem: (-changes[problem][-1].at, problem))[:_MOST_PROBLEMS]:
        first, *rest = _change(changes[problem][-1])
        picks, oracles = (sum(one.what == what for one in changes[problem]) for what in (PICK, ORACLE))
        when = Cell(day(group.runs[changes[problem][-1].at].when))
        rows.append([first, Cell(picks), Cell(oracles), when, *rest])
    counts = [*numbers("picks changed", "oracles changed"), Column("last, UTC", "plain")]
    return Table("Problems that changed", [_CHANGED[0], *counts, *_CHANGED[1:]], rows)


def _change(change: Change) -> list[Cell]:
    before, after = change.tflops
    efficiency = " -> ".join(f"{100 * v:.1f}" if math.isfinite(v) else "none" for v in change.efficiency)
    faster = math.isfinite(before) and before > 0 < after
    kernels = short_names(change.before, change.after)
    tflops = change_percent(100 * (after / before - 1)) if faster else "-"
    return [Cell(one) for one in (change.problem, change.what, *kernels, efficiency, tflops)]
