"""The sections of report.html as data. The templates in page/ render them."""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup, escape

from tile_oracle.judge.verdict import FAILED, PASSED
from tile_oracle.record.final import records_op
from tile_oracle.report import answers, charts, pictures, wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.efficiency_views import choice, efficiency
from tile_oracle.report.kernel_views import heat, kernels, pairs, slices, sources
from tile_oracle.report.page_table import (
    Cell,
    Column,
    Table,
    View,
    number,
    numbers,
    percent,
)
from tile_oracle.report.problem_views import details, drill_cells, problems, worst
from tile_oracle.report.terms import anchor, terms_of


def header(data: ReportData) -> View:
    """The verdict and the main metrics."""
    verdict, figures = data.verdict, data.efficiency
    covered = (
        f"covered: {figures.covered:,} of {figures.problems:,}",
        wording.percent(figures.coverage_percent),
    )
    tiles = [covered]
    if figures.covered:
        shown = []
        for name, part in wording.efficiencies(data):
            more = "" if name == "efficiency" else f"{name}, "
            shown += [
                (f"mean {name}" if not more else f"{more}mean", wording.percent(part.mean_percent)),
                (f"{more}median", wording.percent(part.median_percent)),
                (f"{more}P10", wording.percent(part.p10_percent)),
                (f"{more}min", wording.percent(part.min_percent)),
            ]
        tiles = [
            *shown,
            ("time-weighted efficiency", wording.percent(data.time_weighted_percent)),
            ("top-1: pick is the oracle", wording.percent(figures.top_1_percent)),
            ("top-5: oracle in first five", wording.percent(figures.top_5_percent)),
            ("measuring the top 3", wording.percent(figures.measure_top_percent[2])),
            covered,
        ]
    return {
        "title": wording.title(data),
        "state": verdict.state,
        "css": {PASSED: "passed", FAILED: "failed"}.get(verdict.state, "open"),
        "message": verdict.message,
        "pairs": wording.pairs_sentence(data),
        "run": data.run.name,
        "created": wording.moment(data.run.created),
        "ranked_by": data.ranked_by.sentence,
        "tiles": tiles,
    }


def _answers(data: ReportData) -> View:
    return {
        "good": [_unbroken(one) for one in answers.is_it_good(data)],
        "fails": [_unbroken(one) for one in answers.where_it_fails(data)],
        "commands": [(why[:1].upper() + why[1:], how) for why, how in answers.next_commands(data)],
    }


def _unbroken(sentence: str) -> Markup:
    """Without line breaks between numbers and their unit."""
    text = str(escape(wording.one_line(sentence, 1000)))
    return Markup(re.sub(r"\(?[\d.,]+ %\)?[,.:]?", r'<span class="nowrap">\g<0></span>', text))


def _pictures(data: ReportData) -> View | None:
    if not data.efficiency.covered:
        return None
    drawn, notes = pictures.figures(data)
    return {"figures": [(caption, Markup(chart)) for caption, chart in drawn], "notes": notes}


def _verdict(data: ReportData) -> View | None:
    verdict = data.verdict
    tables = []
    if verdict.criteria:
        css = {True: "pass", False: "fail", None: "hold"}
        rows = []
        for one in verdict.criteria:
            value, accepted, limit, outcome = wording.comparison(one)
            figures = (value, accepted, limit, wording.interval(one))
            found = Cell(outcome, css=css[one.passed], note=one.note)
            rows.append([Cell(one.name), found, *map(Cell, figures)])
        # The outcome first: on a phone the other columns are beyond the edge.
        columns = [
            Column("criterion"),
            Column("outcome"),
            *numbers("value", "baseline", "limit"),
            Column("change, points", "num", "95 % interval of the change from the baseline"),
        ]
        tables.append(Table("Criteria", columns, rows, narrow=True))
    if verdict.losses:
        columns = [Column("lost too much", "id"), *numbers("now", "baseline", "points")]
        drill = drill_cells(data)
        rows = [
            [
                drill.get(loss.problem, Cell(loss.problem)),
                percent(loss.efficiency_percent),
                percent(loss.baseline_percent),
                number(loss.loss_points, f"-{loss.loss_points:.1f}"),
            ]
            for loss in verdict.losses
        ]
        tables.append(Table("Problems that lost too much", columns, rows, narrow=True))
    notes = [*wording.open_lines(verdict), *wording.verdict_notes(data)]
    # The head has the message.
    return {"tables": tables, "notes": notes} if tables or notes else None


def _timeline(data: ReportData) -> View | None:
    found = data.timeline
    if found is None:
        return None
    unit, scale = ("hours", 3600.0) if found.seconds > 7200 else ("minutes", 60.0)
    if found.seconds < 180:
        unit, scale = "seconds", 1.0
    chart = charts.time_bars(
        [
            ("device runs timed kernels", "bar", found.busy),
            ("device idle, kernels are being compiled", "compiling", found.compiling),
        ],
        [(at / scale, status) for at, status in found.faults],
        rest="neither: loading, checks of results, waiting",
        length=found.seconds / scale,
        x_name=f"{unit} since the start",
        y_name="time, %",
    )
    note = (
        f"{found.seconds / scale:,.1f} {unit}: the device ran timed kernels in "
        f"{wording.percent(found.busy_percent)} of the time and waited for compilers in "
        f"{wording.percent(found.compiling_percent)}. With several workers the shares add up."
    )
    if found.pauses:
        note += f" {wording.count(found.pauses, 'pause')} of more than ten minutes cut out."
    return {"chart": Markup(chart), "note": note}


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


SECTIONS: tuple[tuple[str, str, Callable[[ReportData], View | None]], ...] = (
    ("answers", "Summary", _answers),
    ("verdict", "Verdict", _verdict),
    ("pictures", "Time and limits", _pictures),
    ("efficiency", "Efficiency", efficiency),
    ("worst", "Worst problems", worst),
    ("details", "Problems in detail", details),
    ("slices", "Kinds of problem", slices),
    ("heat", "Kernels by kind of problem", heat),
    ("choice", "Gain from the choice of kernel", choice),
    ("sources", "Sources of kernels", sources),
    ("pairs", "Pairs by status", pairs),
    ("problems", "Problems", problems),
    ("kernels", "Kernels", kernels),
    ("timeline", "Timeline of the session", _timeline),
    ("terms", "Terms", _terms),
    ("environment", "Environment and options", _environment),
)
"""For each section: its id, which is its macro in page/sections.html, its heading and its view. A section
whose view is None is left out."""
