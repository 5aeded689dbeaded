"""The history as one static page: charts, steps, runs and changed picks of each group."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from tile_oracle.comparison.wording import short_names
from tile_oracle.history.group import FIGURES, ORACLE, PICK, Change, Figure, Group, Trend
from tile_oracle.history.runs import Runs
from tile_oracle.history.summary import REPORT, RunSummary
from tile_oracle.history.wording import day, headings, mark_text, no_step, run_rows, state_line, trend_rows
from tile_oracle.pages.charts import Plot, legend, line_key
from tile_oracle.pages.render import page
from tile_oracle.pages.tables import Block, Cell, Column, Figures, Note, Notes, Table, numbers
from tile_oracle.pages.words import change_percent, count, one_line

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


_MOST_PROBLEMS = 200
_MOST_MARKS = 60
_TOGETHER = ("mean", "median", "p10", "worst")
_STATES = {"passed": "good", "failed": "bad"}


def history_html(runs: Runs, groups: Sequence[Group], place: Path) -> str:
    """Returns the page as text. place: where it will lie, for links to the runs' reports."""
    several = (
        f"{count(len(runs.runs), 'run')}, {len(groups)} series of the same problem set, kernel set and "
        f"architecture, in {runs.root}."
    )
    notes = [Notes(runs.notes)] if runs.notes else []
    home = place.resolve().parent
    sections = [
        (f"group-{n}", one.title, list(_blocks(one, runs.root, home))) for n, one in enumerate(groups)
    ]
    return page(f"History of {runs.root.name}", [Note(several, css=""), Note(_ABOUT), *notes], sections)


_ABOUT = (
    "In the charts, a dot is a run and leads to its report; a numbered dashed line marks a change of device, "
    "driver, toolchain, kernel sources or model; a dark horizontal line is a level between two steps. Speed "
    "of the oracles: geometric mean of their TFLOPS, in percent of the first run."
)


def _blocks(group: Group, root: Path, home: Path) -> Iterator[Block]:
    """Yields what the page says of a group."""
    links = [_link(run, root, home) for run in group.runs]
    last, steps = group.runs[-1], _steps(group)
    yield Note(f"{state_line(group)}.", css="", badges=[(last.state or "unknown", _css(last))])
    if len(group.runs) > 1:
        yield Figures(_charts(group, links))
    yield Markup("<h3>Steps</h3>")
    if steps.rows:
        yield steps
        yield Note("step: noise does not explain it (p of at most 0.01); open: more runs will tell.")
    else:
        yield Note(f"None: {no_step(group)}.")
    marks = list(enumerate(_marks(group).items(), 1))[: -_MOST_MARKS - 1 : -1]
    if marks:
        yield Markup("<h3>Changes of device, driver, toolchain, sources and model</h3>")
        said = [f"{day(group.runs[at].when)}: {text}" for _, (at, text) in marks]
        yield Notes(said, [place for place, _ in marks])
    yield _runs(group, links)
    problems = _problems(group)
    if problems.rows:
        yield problems
    if (left := len({one.problem for one in group.changes}) - _MOST_PROBLEMS) > 0:
        yield Note(f"{left:,} more problems; --json lists every change.")


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
    return Table(f"Runs of {group.title}", columns, rows, heading="Runs")


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
    columns = [_CHANGED[0], *counts, *_CHANGED[1:]]
    return Table("Problems that changed", columns, rows, heading="Problems by their last change")


def _change(change: Change) -> list[Cell]:
    before, after = change.tflops
    efficiency = " -> ".join(f"{100 * v:.1f}" if math.isfinite(v) else "none" for v in change.efficiency)
    faster = math.isfinite(before) and before > 0 < after
    kernels = short_names(change.before, change.after)
    tflops = change_percent(100 * (after / before - 1)) if faster else "-"
    return [Cell(one) for one in (change.problem, change.what, *kernels, efficiency, tflops)]
