"""report.html: one self-contained file without libraries or downloads, readable without its script.

The templates in page/ render its sections, which are data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup, escape

from tile_oracle.judge.verdict import FAILED, PASSED
from tile_oracle.pages import words
from tile_oracle.pages.render import render
from tile_oracle.pages.tables import Block, Cell, Column, Made, Notes, Table, View, number, numbers, percent
from tile_oracle.record.final import records_op
from tile_oracle.report import answers, wording
from tile_oracle.report.answers import next_steps
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import drill_data, drill_down_of
from tile_oracle.report.figures import EFFICIENCY, FOUND, efficiencies, figure_groups
from tile_oracle.report.picker_figures import pickers_table
from tile_oracle.report.pictures import hero_line
from tile_oracle.report.terms import anchor, terms_of
from tile_oracle.report.views import (
    drill_cells,
    kernels,
    limits,
    pairs,
    predictions,
    problems,
    slices,
    sources,
)


def header(data: ReportData) -> View:
    """Returns the verdict and the main metrics."""
    verdict, figures = data.verdict, data.efficiency
    covered = (f"covered: {figures.covered:,} of {figures.problems:,}", figures.coverage_percent)
    judged = bool(figures.covered)
    hero = efficiencies(data)[0][0] if judged else ""
    shown = [
        (name if group.label in (hero, FOUND) else f"{group.label}, {name}", value)
        for group in figure_groups(data)
        if group.label in (EFFICIENCY, "in-sample", FOUND)
        for name, value in group.pairs
        if group.label != hero or name not in ("mean", "P10")
    ]
    return {
        "title": wording.title(data),
        "state": verdict.state,
        "css": {PASSED: "passed", FAILED: "failed"}.get(verdict.state, "open"),
        "message": verdict.message,
        "pairs": wording.pairs_sentence(data),
        "run": data.run.name,
        "created": words.moment(data.run.created),
        "ranked_by": data.ranked_by.sentence,
        "line": hero_line(data) if judged else "",
        "large": _large(data) if judged else [],
        "figures": [*shown, (covered[0], words.percent(covered[1]))],
    }


def _large(data: ReportData) -> list[tuple[str, str, str]]:
    """(figure, its name, a note) of what stands beside the line."""
    lost, weighted = data.lost, data.time_weighted_percent
    found = [(words.percent(efficiencies(data)[0][1].p10_percent), "P10", "one problem in ten is lower")]
    if weighted is not None:
        total = f"{words.microseconds(float(lost['lost_us'].sum()))} µs"
        share = words.percent(max(100.0 - words.as_shown(weighted), 0.0))
        found.append((share, "time lost", f"{total} in {words.count(len(lost), 'problem')}"))
    return found


def _answers(data: ReportData) -> View:
    return {
        "good": [_linked(one) for one in answers.is_it_good(data)],
        "fails": [_linked(one, drill_down_of(data).titles) for one in answers.where_it_fails(data)],
        "commands": [(f"T{step.reason[1:]}", step.command) for step in next_steps(data)],
    }


def _linked(sentence: str, titles: Mapping[str, str] | None = None) -> Markup:
    """With its links, and without line breaks between numbers and their unit. titles: of problems that it may
    name."""
    text = str(escape(words.one_line(sentence, 1000)))
    for name, href in getattr(sentence, "links", ()):
        shown = words.one_line((titles or {}).get(name, name), 1000)
        hover = Markup(' title="{}"').format(name) if shown != name else ""
        link = Markup('<a href="{}"{}>{}</a>').format(href, hover, shown)
        text = text.replace(str(escape(name)), str(link), 1)
    return Markup(re.sub(r"\(?[\d.,]+ %\)?[,.:]?", r'<span class="nowrap">\g<0></span>', text))


def criteria(data: ReportData, *, units: bool = True) -> Table:
    """Returns the criteria of the verdict. The outcome first: on a phone the other columns are beyond the
    edge.

    units: whether points are named; without, the table fits into the 80 columns of a terminal.
    """
    css = {True: "pass", False: "fail", None: "hold"}
    rows = []
    for one in data.verdict.criteria:
        *figures, outcome = wording.comparison(one)
        figures = figures if units else [text.replace(" points", "") for text in figures]
        shown = [*map(Cell, figures), Cell(wording.interval(one))]
        rows.append([Cell(one.name), Cell(outcome, css=css[one.passed], note=one.note), *shown])
    heading = "change, points" if units else "change"
    change = Column(heading, "num", "95 % interval of the change from the baseline")
    columns = [Column("criterion"), Column("outcome"), *numbers("value", "baseline", "limit"), change]
    return Table("Criteria", columns, rows, narrow=True)


def losses(data: ReportData) -> Table:
    """Returns the problems whose pick lost too much."""
    drill = drill_cells(data)
    columns: list[Made] = [
        (Column("lost too much", "id"), lambda loss: drill.get(loss.problem, Cell(loss.problem))),
        (Column("now", "num"), lambda loss: percent(loss.efficiency_percent)),
        (Column("baseline", "num"), lambda loss: percent(loss.baseline_percent)),
        (Column("points", "num"), lambda loss: number(loss.loss_points, f"-{loss.loss_points:.1f}")),
    ]
    return Table.of("Problems that lost too much", data.verdict.losses, columns, narrow=True)


def _verdict(data: ReportData) -> Sequence[Block]:
    tables = [table for table in (criteria(data), losses(data)) if table.rows]
    notes = [*wording.open_lines(data.verdict), *wording.verdict_notes(data)]
    # The head has the message.
    return [*tables, *([Notes(notes)] if notes else [])]


def _pickers(data: ReportData) -> Sequence[Block]:
    table = pickers_table(data.pickers)
    return [table] if table.rows else []


def _terms(data: ReportData) -> View:
    op = records_op(data.selection)
    return {"terms": [(term, anchor(term), meaning) for term, meaning in terms_of(op).items()]}


def _environment(data: ReportData) -> View:
    run = data.run
    about = {
        "problem set": run.problem_set,
        "its sha256": run.problem_set_sha256,
        "kernel set": run.kernel_set,
        "target": run.target,
        "architecture": run.arch,
        "device": run.device,
        "tile-oracle": run.harness_version,
        "replayed": run.replayed,
        "baseline": run.baseline_file
        and run.baseline_file + ("" if data.baseline else " (none before this run)"),
        **run.environment,
    }
    known = [{name: value for name, value in part.items() if value} for part in (about, run.options)]
    return {"lists": [part for part in known if part]}


Section = tuple[str, str, Callable[[ReportData], View | Sequence[Block]]]

GROUPS: Mapping[str, Sequence[Section]] = {
    "Verdict": (
        ("answers", "Summary", _answers),
        ("judgement", "Criteria and notes", _verdict),
        ("pickers", "Pickers", _pickers),
    ),
    "Where": (
        ("slices", "Kinds of problem", slices),
        ("problems", "Problems, most lost time first", problems),
        ("predictions", "Predictions", predictions),
    ),
    "Kernels": (
        ("sources", "Sources of kernels", sources),
        ("pool", "All kernels", kernels),
        ("limits", "Oracles and the limits of the device", limits),
    ),
    "Data": (
        ("pairs", "Pairs by status", pairs),
        ("terms", "Terms", _terms),
        ("environment", "Environment and options", _environment),
    ),
}
"""Group -> its sections: id, heading, and its blocks or the data of its macro in page/sections.html. An empty
one is left out."""


PAGE = Path(__file__).with_name("page")


def report_html(data: ReportData) -> str:
    """Returns the page as text. Foreign text is escaped. A content security policy allows only the page's own
    script and no downloads."""
    groups = []
    for group, parts in GROUPS.items():
        made = [(name, heading, view(data)) for name, heading, view in parts]
        groups.append((group.lower(), group, [section for section in made if section[2]]))
    head = header(data)
    return render(
        PAGE,
        "report.html",
        style=(PAGE / "report.css").read_text(encoding="utf-8"),
        script=(PAGE / "report.js").read_text(encoding="utf-8"),
        anchor=anchor,
        title=f"{head['state']}: {head['title']}",
        header=head,
        groups=[group for group in groups if group[2]],
        drill_data=Markup(drill_data(data)),
    )
