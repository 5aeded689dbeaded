"""report.html: one self-contained file, no library, nothing fetched, readable without its script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tile_oracle.judge.failures import Failure
from tile_oracle.judge.verdict import FAILED, PASSED
from tile_oracle.report import charts, wording
from tile_oracle.report.data import ReportData
from tile_oracle.selection import COVERED, TOP_K

_PAGE = Path(__file__).with_name("page")
_MOST_FAILURES = 500
_MOST_KERNELS = 500
_PRINTED_ROWS = 60


def report_html(data: ReportData) -> str:
    """The page as text. Everything foreign in it is escaped; a content security policy lets only the page's
    own script run and nothing be loaded."""
    sections = [
        ("verdict", "Verdict", _verdict(data)),
        ("efficiency", "Efficiency", _efficiency(data)),
        ("worst", "Worst problems", _worst(data)),
        ("slices", "Kinds of problem", _slices(data)),
        ("choice", "What the choice is worth", _choice(data)),
        ("pairs", "Pairs by status", _statuses(data)),
        ("problems", "Problems", _problems(data)),
        ("kernels", "Kernels", _kernels(data)),
        ("environment", "Environment and options", _environment(data)),
    ]
    shown = [(name, heading, body) for name, heading, body in sections if body]
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in shown)
    bodies = "".join(
        f'<section id="{name}" aria-labelledby="{name}-heading"><h2 id="{name}-heading">{heading}</h2>{body}'
        "</section>\n"
        for name, heading, body in shown
    )
    style = _PAGE.with_suffix(".css").read_text(encoding="utf-8")
    script = _PAGE.with_suffix(".js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(data.verdict.state)}: {_text(wording.title(data))}</title>\n"
        f"<style>{style}</style>\n</head>\n<body>\n<main>\n{_header(data)}\n"
        f'<nav aria-label="Sections">{links}</nav>\n{bodies}</main>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


# ---- tables -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cell:
    """html: already escaped. value: what the cell sorts by where that is not its text."""

    html: str
    value: str | None = None


@dataclass(frozen=True)
class _Column:
    heading: str
    css: str = ""
    hint: str = ""


def _table(
    columns: Sequence[_Column],
    rows: Iterable[Sequence[_Cell]],
    *,
    name: str = "",
    sortable: bool = False,
    narrow: bool = False,
    caption: str = "",
) -> str:
    """A table; the first cell of a row is its heading. Long ones scroll, and print their first rows."""
    heads = []
    for column in columns:
        hint = f' title="{_text(column.hint)}"' if column.hint else ""
        inner = (
            f'<button type="button"{hint}>{_text(column.heading)}</button>'
            if sortable
            else _text(column.heading)
        )
        css = f' class="{column.css}"' if column.css else ""
        heads.append(f'<th scope="col"{css}{"" if sortable else hint}>{inner}</th>')
    lines = []
    for row in rows:
        cells = []
        for place, (column, cell) in enumerate(zip(columns, row, strict=True)):
            tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
            css = f' class="{column.css}"' if column.css else ""
            value = f' data-v="{_text(cell.value)}"' if cell.value is not None else ""
            cells.append(f"<{tag}{scope}{css}{value}>{cell.html}</{tag}>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    kinds = [
        kind
        for kind, on in (("sortable", sortable), ("narrow", narrow), ("long", len(lines) > _PRINTED_ROWS))
        if on
    ]
    attributes = (f' id="{name}"' if name else "") + (f' class="{" ".join(kinds)}"' if kinds else "")
    label = f' aria-label="{_text(caption)}"' if caption else ""
    body = "\n".join(lines)
    table = (
        f"<table{attributes}{label}><thead><tr>{''.join(heads)}</tr></thead><tbody>\n{body}\n</tbody></table>"
    )
    if narrow:
        return f'<div class="scroll fit">{table}</div>'
    note = (
        f'<p class="note printed">The first {_PRINTED_ROWS} rows are printed.</p>'
        if len(lines) > _PRINTED_ROWS
        else ""
    )
    return f'<div class="scroll" tabindex="0" role="region"{label}>{table}</div>{note}'


def _filter(table: str, what: str) -> str:
    return (
        f'<div class="filter" hidden><label for="{table}-filter">Filter {what}</label>'
        f'<input id="{table}-filter" type="search" data-table="{table}" '
        'placeholder="words that a row must have">'
        '<output aria-live="polite"></output></div>'
    )


def _text(foreign: object) -> str:
    return escape(wording.one_line(foreign, 2000), quote=True)


def _plain(foreign: object) -> _Cell:
    return _Cell(_text(foreign))


def _name(foreign: object) -> _Cell:
    """A name that breaks after its underscores and dashes where it must."""
    return _Cell(_breakable(_text(foreign)))


def _breakable(escaped: str) -> str:
    return escaped.replace("_", "_<wbr>")


def _number(value: Any, shown: str) -> _Cell:
    missing = value is None or pd.isna(value)
    return _Cell(_text("-" if missing else shown), "" if missing else f"{float(value):.9g}")


def _whole(value: Any) -> _Cell:
    return _number(value, "-" if value is None or pd.isna(value) else f"{int(value):,}")


def _percent(value: float | None) -> _Cell:
    return _number(value, wording.percent(value) if value is not None else "-")


def _tflops(value: float | None) -> _Cell:
    return _number(value, wording.tflops(value))


def _times(value: float | None) -> _Cell:
    return _number(value, wording.times(value))


def _meter(percent: float) -> str:
    return (
        '<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="rest" width="100" height="8"/><rect width="{percent:.1f}" height="8"/></svg>'
    )


# ---- sections ---------------------------------------------------------------------------------------


def _header(data: ReportData) -> str:
    verdict, figures = data.verdict, data.efficiency
    css = {PASSED: "passed", FAILED: "failed"}.get(verdict.state, "open")
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
            ("top-1: pick is the oracle", wording.percent(figures.top_1_percent)),
            ("top-5: oracle in first five", wording.percent(figures.top_5_percent)),
            ("measuring the top 3", wording.percent(figures.measure_top_percent[2])),
            covered,
        ]
    boxes = "".join(
        f'<div class="tile"><b>{_text(value)}</b><span>{_text(name)}</span></div>' for name, value in tiles
    )
    created = f" · {_text(data.run.created)}" if data.run.created else ""
    return (
        f"<header><h1>{_text(wording.title(data))}</h1>"
        f'<p class="verdict-line"><span class="badge {css}">{_text(verdict.state)}</span> '
        f"{_text(verdict.message)}</p>"
        f'<p class="muted">{_text(wording.pairs_sentence(data))} · run {_text(data.run.name)}{created}<br>'
        f"{_text(data.ranked_by.sentence)}</p>"
        f'<div class="tiles">{boxes}</div></header>'
    )


def _verdict(data: ReportData) -> str:
    verdict = data.verdict
    parts = []
    if verdict.criteria:
        css = {True: "pass", False: "fail", None: "hold"}
        rows = []
        for one in verdict.criteria:
            value, accepted, limit, outcome = wording.comparison(one)
            outcome_html = f'<span class="{css[one.passed]}">{_text(outcome)}</span>'
            if one.note:
                outcome_html += f'<br><span class="note">{_text(one.note)}</span>'
            figures = (one.name, value, accepted, limit, wording.interval(one))
            rows.append([*map(_plain, figures), _Cell(outcome_html)])
        columns = [
            _Column("criterion"),
            *(_Column(name, "num") for name in ("value", "baseline", "limit", "change (points)")),
            _Column("outcome"),
        ]
        parts.append(_table(columns, rows, narrow=True, caption="Criteria"))
    else:
        parts.append(f"<p>{_text(verdict.message)}</p>")
    if verdict.losses:
        columns = [
            _Column("lost too much", "name"),
            *(_Column(n, "num") for n in ("now", "baseline", "points")),
        ]
        rows = [
            [
                _plain(loss.problem),
                _percent(loss.efficiency_percent),
                _percent(loss.baseline_percent),
                _number(loss.loss_points, f"-{loss.loss_points:.1f}"),
            ]
            for loss in verdict.losses
        ]
        parts.append(_table(columns, rows, narrow=True, caption="Problems that lost too much"))
    said = [*wording.open_lines(verdict), *wording.verdict_notes(data)]
    notes = "".join(f"<li>{_text(note)}</li>" for note in said)
    tables = f'<div class="columns">{"".join(f"<div>{part}</div>" for part in parts)}</div>'
    return tables + (f'<ul class="notes">{notes}</ul>' if notes else "")


def _efficiency(data: ReportData) -> str:
    covered = data.covered
    if covered.empty:
        reasons = "; ".join(f"{len(ids):,} {reason}" for reason, ids in data.not_covered.items())
        return f'<p class="muted">No problem has an efficiency: {_text(reasons) or "no problems"}.</p>'
    percent = (100.0 * covered["efficiency"].to_numpy(dtype=np.float64)).tolist()
    low = _low_end(percent)
    sorted_lines = [charts.Line("this run", _sorted_points(percent), "first")]
    if data.baseline is not None:
        accepted = sorted(100.0 * value for value in data.baseline.efficiencies.values() if value is not None)
        sorted_lines.append(charts.Line("baseline", _sorted_points(accepted), "second"))
        low = min(low, _low_end(accepted))
    figures = [
        (
            "Distribution",
            charts.histogram(
                percent, low=low, high=100.0, bins=20, x_name="efficiency, %", y_name="problems"
            ),
        ),
        (
            "Efficiency of every problem, worst first",
            charts.lines(
                sorted_lines,
                x_range=(0.0, 100.0),
                y_range=(low, 100.0),
                x_name="problems, % of the covered, worst first",
                y_name="efficiency, %",
            ),
        ),
        ("Mean efficiency when the first k picks are measured", _top_k_chart(data)),
        ("Place of the oracle in the model's ranking", _rank_chart(data)),
    ]
    return f'<div class="charts">{"".join(map(_figure, figures))}</div>'


def _top_k_chart(data: ReportData) -> str:
    reached = data.efficiency.measure_top_percent
    low = _low_end(reached)
    drawn = [charts.Line("first k picks", list(enumerate(reached, start=1)), "first", marked=True)]
    for name, value, css in (
        ("one kernel for all problems", data.fixed_mean_percent, "second"),
        ("the sweep's winners, measured again", data.repeatability_percent, "third"),
    ):
        if value is not None:
            below = value < low
            named = f"{name}: {wording.percent(value)}{' (below the axis)' if below else ''}"
            drawn.append(charts.Line(named, [] if below else [(1.0, value), (float(TOP_K), value)], css))
    return charts.lines(
        drawn,
        x_range=(1.0, float(TOP_K)),
        y_range=(low, 100.0),
        x_name="k",
        y_name="mean efficiency, %",
        x_ticks=range(1, TOP_K + 1),
    )


def _rank_chart(data: ReportData) -> str:
    rank = data.covered["oracle_rank"].to_numpy(dtype=np.float64, na_value=np.inf)
    parts = [(str(place), place, place) for place in range(1, 6)]
    bounds = [*parts, ("6-10", 6, 10), ("11-20", 11, 20), ("> 20", 21, 10**9)]
    counts = [(name, int(((rank >= low) & (rank <= high)).sum())) for name, low, high in bounds]
    if np.isinf(rank).any():
        counts.append(("none", int(np.isinf(rank).sum())))
    return charts.columns(counts, x_name="place", y_name="problems")


def _worst(data: ReportData) -> str:
    rows = wording.worst_rows(data, 10)
    if not rows:
        return "<p>Every pick is as fast as the oracle.</p>" if data.efficiency.covered else ""
    columns = [
        _Column("efficiency", "num"),
        _Column("problem", "name"),
        _Column("pick", "name"),
        _Column("oracle", "name"),
        _Column("why", "detail"),
    ]
    cells = [
        [
            _percent(100 * row["efficiency"]),
            _plain(row["problem"]),
            _with_speed(row, "pick"),
            _with_speed(row, "oracle"),
            _plain(wording.why(row)),
        ]
        for row in rows
    ]
    return _table(columns, cells, caption="Worst problems")


def _with_speed(row: Mapping[str, Any], whose: str) -> _Cell:
    speed = wording.tflops(row[f"{whose}_tflops"])
    unit = "" if speed == "-" else f' <span class="muted">{_text(speed)} TFLOPS</span>'
    return _Cell(_breakable(_text(wording.short_kernel(row[f"{whose}_kernel"], row))) + unit)


def _slices(data: ReportData) -> str:
    if data.slices.empty or data.slices["oracle_over_median"].isna().all():
        return ""
    columns = [
        _Column("kind"),
        _Column("problems", "num"),
        _Column("covered", "num"),
        _Column("mean", "num"),
        _Column("P10", "num"),
        _Column("min", "num"),
        _Column("oracle / median kernel", "num"),
    ]
    cells = [
        [
            _plain(row["slice"]),
            _whole(row["problems"]),
            _whole(row["covered"]),
            *(_percent(_or_none(row[name])) for name in ("mean_percent", "p10_percent", "min_percent")),
            _times(row["oracle_over_median"]),
        ]
        for row in wording.rows(data.slices)
    ]
    return '<p class="note">A problem can be of several kinds.</p>' + _table(
        columns, cells, narrow=True, sortable=True, caption="Efficiency by kind of problem"
    )


def _choice(data: ReportData) -> str:
    selection = data.selection[data.selection["oracle_tflops"].notna()]
    if selection.empty:
        return ""
    oracle = selection["oracle_tflops"].to_numpy(dtype=np.float64)
    curves = [
        (name, np.sort(oracle / selection[column].to_numpy(dtype=np.float64)), css)
        for name, column, css in (
            ("oracle / worst kernel", "worst_tflops", "second"),
            ("oracle / median kernel", "median_tflops", "first"),
        )
    ]
    drawn = [charts.Line(name, _sorted_points(values.tolist()), css) for name, values, css in curves]
    high = max(2.0, float(max(values.max() for _, values, _ in curves)) * 1.05)
    chart = charts.lines(
        drawn,
        x_range=(0.0, 100.0),
        y_range=(1.0, high),
        x_name="problems, %, least first",
        y_name="times faster",
        logarithmic=True,
    )
    rows = [
        [_plain(name), *(_times(float(np.percentile(values, q))) for q in (0, 10, 50, 90, 100))]
        for name, values, _ in curves
    ]
    columns = [
        _Column("ratio of TFLOPS"),
        *(_Column(name, "num") for name in ("min", "P10", "median", "P90", "max")),
    ]
    return (
        '<p class="note">How much faster the oracle is than the other ok kernels of its problem.</p>'
        f'<div class="charts">{_figure(("Speed-up of the oracle", chart))}'
        f"<div>{_table(columns, rows, narrow=True, caption='Speed-up of the oracle')}</div></div>"
    )


_STATUS_CSS = {
    "ok": "s-ok",
    "wrong": "s-bad",
    "flaky": "s-bad",
    "crash": "s-bad",
    "timeout": "s-bad",
    "build_error": "s-bad",
}


def _statuses(data: ReportData) -> str:
    counts = wording.status_counts(data)
    if not counts:
        return '<p class="muted">No pair was measured.</p>'
    total = sum(number for _, number in counts)
    bar = charts.stacked_bar(
        [
            (status, number, _STATUS_CSS.get(status, "s-other" if status == "unsupported" else "s-warn"))
            for status, number in counts
        ]
    )
    rows = [[_plain(status), _whole(number), _percent(100.0 * number / total)] for status, number in counts]
    columns = [_Column("status"), _Column("pairs", "num"), _Column("share", "num")]
    parts = [bar, _table(columns, rows, narrow=True, caption="Pairs by status")]
    for heading, failures in (
        ("Failures", data.verdict.new_failures),
        ("Known failures", data.verdict.known_failures),
        ("Healed", data.verdict.healed),
    ):
        if failures:
            parts.append(_failures(heading, failures))
    return "".join(parts)


def _failures(heading: str, failures: Sequence[Failure]) -> str:
    columns = [
        _Column("status"),
        _Column("kernel", "name"),
        _Column("problem", "name"),
        _Column("detail", "detail"),
    ]
    rows = []
    for one in failures[:_MOST_FAILURES]:
        status = one.status if one.known in (None, one.status) else f"{one.status} (was {one.known})"
        rows.append([_plain(status), _name(wording.kernel_on(one)), _plain(one.problem), _plain(one.detail)])
    name = heading.lower().replace(" ", "-")
    more = len(failures) - len(rows)
    note = f'<p class="note">and {more:,} more: all are in the measurements</p>' if more > 0 else ""
    return (
        f"<h3>{heading} ({len(failures):,})</h3>"
        f"{_filter(name, 'failures')}{_table(columns, rows, name=name, sortable=True, caption=heading)}{note}"
    )


def _problems(data: ReportData) -> str:
    selection = data.selection.sort_values(["efficiency", "problem"], na_position="first")
    if selection.empty:
        return ""
    columns = [
        _Column("problem", "name"),
        _Column("GFLOP", "num"),
        _Column("efficiency", "num", "TFLOPS of the pick / TFLOPS of the oracle"),
        _Column("pick", "name"),
        _Column("oracle", "name"),
        _Column("TFLOPS", "num", "of the oracle"),
        _Column("rank", "num", "place of the oracle in the model's ranking"),
        _Column("ok", "num", "kernels that are ok, of those measured"),
        _Column("/ median", "num", "TFLOPS of the oracle / of the median ok kernel"),
    ]
    cells = [_problem_cells(row) for row in wording.rows(selection)]
    return _filter("all-problems", "problems") + _table(
        columns, cells, name="all-problems", sortable=True, caption="All problems, worst first"
    )


def _problem_cells(row: Mapping[str, Any]) -> list[_Cell]:
    if row["coverage"] == COVERED:
        percent = 100 * row["efficiency"]
        efficiency = _Cell(_text(wording.percent(percent)) + _meter(percent), f"{percent:.9g}")
    else:
        efficiency = _Cell(f'<span class="hold">{_text(row["coverage"])}</span>', "")
    pick = _with_speed(row, "pick").html
    if not pd.isna(row["pick_status"]) and row["pick_status"] != "ok":
        pick += f' <span class="fail">{_text(row["pick_status"])}</span>'
    if row["in_sample"]:
        pick += ' <span class="hold">in-sample</span>'
    ratio = row["oracle_tflops"] / row["median_tflops"] if row["oracle_tflops"] > 0 else None
    return [
        _plain(row["problem"]),
        _number(row["flops"], _gflop(row["flops"])),
        efficiency,
        _Cell(pick),
        _name(wording.short_kernel(row["oracle_kernel"], row)),
        _tflops(row["oracle_tflops"]),
        _whole(row["oracle_rank"]),
        _Cell(f"{row['kernels_ok']:,} / {row['kernels_measured']:,}", str(row["kernels_ok"])),
        _times(ratio),
    ]


def _kernels(data: ReportData) -> str:
    kernels = data.kernels
    if kernels.empty:
        return ""
    columns = [
        _Column("kernel", "name"),
        _Column("oracle of", "num", "problems where it is the oracle"),
        _Column("pick of", "num", "problems where it is the pick"),
        _Column("ok", "num", "problems where it is ok"),
        _Column("not ok", "num", "measured problems where it is not"),
        _Column("mean efficiency", "num", "mean of its TFLOPS / the oracle's, where it is ok"),
    ]
    facts = _code_facts(data.final)
    columns += [_Column(heading, "num", _CODE_FACTS[heading][1]) for heading in facts]
    cells = [
        [
            _name(row["kernel"]),
            *(_whole(row[name]) for name in ("oracles", "picks", "ok", "not_ok")),
            _percent(_or_none(100.0 * row["mean_efficiency"])),
            *(_whole(values.get(row["kernel"])) for values in facts.values()),
        ]
        for row in wording.rows(kernels.head(_MOST_KERNELS))
    ]
    winners = int((kernels["oracles"] > 0).sum())
    note = f"{winners:,} of {wording.count(len(kernels), 'kernel')} are the oracle of some problem."
    if len(kernels) > _MOST_KERNELS:
        note += f" The first {_MOST_KERNELS} are listed."
    return (
        f'<p class="note">{note}</p>{_filter("all-kernels", "kernels")}'
        f"{_table(columns, cells, name='all-kernels', sortable=True, caption='Kernels, most oracles first')}"
    )


_CODE_FACTS = {
    "registers": ("vgprs", "vector registers of a work-item, on AMD accumulators included"),
    "LDS bytes": ("lds_bytes", "of a workgroup"),
    "spills": ("spills", "registers that did not fit"),
    "workgroups/CU": ("workgroups_per_cu", "workgroups that a compute unit holds at once"),
    "matrix instr.": ("loop_matrix_instructions", "matrix instructions in the main loop's body"),
    "binary bytes": ("binary_bytes", "size of the binary"),
}
"""Heading -> column of the records, and what it means."""


def _code_facts(final: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Heading -> kernel -> figure; those of GPUs only where something is known of them."""
    if "vgprs" not in final or final["vgprs"].isna().all():
        return {}
    named = {heading: name for heading, (name, _) in _CODE_FACTS.items() if name in final}
    first = final.groupby("kernel", observed=True)[list(named.values())].first()
    return {
        heading: {str(kernel): float(value) for kernel, value in first[name].dropna().items()}
        for heading, name in named.items()
    }


def _environment(data: ReportData) -> str:
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
        "baseline": run.baseline_file and run.baseline_file + ("" if data.baseline else " (not there yet)"),
        **run.environment,
    }
    parts = [_definitions(about), _definitions(run.options)]
    return f'<div class="columns">{"".join(part for part in parts if part)}</div>'


def _definitions(values: Mapping[str, str]) -> str:
    entries = "".join(
        f'<dt>{_text(name)}</dt><dd class="name">{_text(value)}</dd>'
        for name, value in values.items()
        if value
    )
    return f"<dl>{entries}</dl>" if entries else ""


def _figure(captioned: tuple[str, str]) -> str:
    caption, chart = captioned
    return f"<figure><figcaption>{_text(caption)}</figcaption>{chart}</figure>"


def _sorted_points(values: Sequence[float]) -> list[tuple[float, float]]:
    """Ascending values over the share of values up to each, in percent; one value is a level line."""
    if len(values) == 1:
        return [(0.0, values[0]), (100.0, values[0])]
    return [(100.0 * place / (len(values) - 1), value) for place, value in enumerate(values)]


def _low_end(percent: Sequence[float]) -> float:
    """Where an axis up to 100 % begins so that it shows the values: 0, 50, 80 or 90."""
    lowest = min(percent)
    return next(low for low in (90.0, 80.0, 50.0, 0.0) if lowest >= low)


def _gflop(flops: float) -> str:
    return f"{flops / 1e9:.3g}" if flops < 1e12 else f"{flops / 1e9:,.0f}"


def _or_none(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
