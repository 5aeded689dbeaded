"""The sections of report.html as data. The templates in page/ render them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from tile_oracle.judge.failures import Failure
from tile_oracle.judge.verdict import FAILED, PASSED
from tile_oracle.oracle import records_op
from tile_oracle.record.schema import STATUSES
from tile_oracle.report import answers, charts, pictures, wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import DrillDown, about, drill_down_of
from tile_oracle.report.heat_map import WITHIN, heat_map
from tile_oracle.report.page_table import Cell, Column, Table, number, numbers, percent, tflops, times, whole
from tile_oracle.report.sources import source_figures
from tile_oracle.report.terms import anchor, terms_of
from tile_oracle.selection import COVERED, TOP_K

View = dict[str, Any]
"""The data for a section's template."""

_MOST_FAILURES = 500
_MOST_KERNELS = 500
_MOST_GROUPS = 30
_MOST_WRITTEN, _ROWS_WRITTEN = 15, 8
"""Problems whose kernels are in the page without a script, and kernels of each."""


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
        "created": data.run.created,
        "ranked_by": data.ranked_by.sentence,
        "tiles": tiles,
    }


def _answers(data: ReportData) -> View:
    return {
        "good": answers.is_it_good(data),
        "fails": answers.where_it_fails(data),
        "commands": answers.next_commands(data),
    }


def _pictures(data: ReportData) -> View | None:
    if not data.efficiency.covered:
        return None
    drawn, note = pictures.figures(data)
    return {"figures": [(caption, Markup(chart)) for caption, chart in drawn], "note": note}


def _verdict(data: ReportData) -> View:
    verdict = data.verdict
    tables = []
    if verdict.criteria:
        css = {True: "pass", False: "fail", None: "hold"}
        rows = []
        for one in verdict.criteria:
            value, accepted, limit, outcome = wording.comparison(one)
            figures = (one.name, value, accepted, limit, wording.interval(one))
            rows.append([*map(Cell, figures), Cell(outcome, css=css[one.passed], note=one.note)])
        columns = [
            Column("criterion"),
            *numbers("value", "baseline", "limit", "change (points)"),
            Column("outcome"),
        ]
        tables.append(Table("Criteria", columns, rows, narrow=True))
    if verdict.losses:
        columns = [Column("lost too much", "name"), *numbers("now", "baseline", "points")]
        rows = [
            [
                Cell(loss.problem),
                percent(loss.efficiency_percent),
                percent(loss.baseline_percent),
                number(loss.loss_points, f"-{loss.loss_points:.1f}"),
            ]
            for loss in verdict.losses
        ]
        tables.append(Table("Problems that lost too much", columns, rows, narrow=True))
    return {
        "message": "" if verdict.criteria else verdict.message,
        "tables": tables,
        "notes": [*wording.open_lines(verdict), *wording.verdict_notes(data)],
    }


def _efficiency(data: ReportData) -> View:
    covered = data.covered
    if covered.empty:
        reasons = "; ".join(f"{len(ids):,} {reason}" for reason, ids in data.not_covered.items())
        return {"missing": reasons or "no problems"}
    values = (100.0 * covered["efficiency"].to_numpy(dtype=np.float64)).tolist()
    low = _low_end(values)
    sorted_lines = [charts.Line("this run", _sorted_points(values), "first")]
    if data.baseline is not None:
        accepted = sorted(100.0 * value for value in data.baseline.efficiencies.values() if value is not None)
        sorted_lines.append(charts.Line("baseline", _sorted_points(accepted), "second"))
        low = min(low, _low_end(accepted))
    distribution = charts.histogram(
        values, low=low, high=100.0, bins=20, x_name="efficiency, %", y_name="problems"
    )
    by_problem = charts.lines(
        sorted_lines,
        x_range=(0.0, 100.0),
        y_range=(low, 100.0),
        x_name="problems, % of the covered, worst first",
        y_name="efficiency, %",
    )
    figures = [
        ("Distribution", distribution),
        ("Efficiency of every problem, worst first", by_problem),
        ("Mean efficiency when the first k picks are measured", _top_k_chart(data)),
        ("Place of the oracle in the model's ranking", _rank_chart(data)),
    ]
    return {"missing": "", "figures": [(caption, Markup(chart)) for caption, chart in figures]}


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


def _worst(data: ReportData) -> View | None:
    rows = wording.worst_rows(data, 10)
    if not rows:
        return {"table": None} if data.efficiency.covered else None
    columns = [
        Column("efficiency", "num"),
        Column("problem", "name"),
        Column("pick", "name"),
        Column("oracle", "name"),
        Column("why", "detail"),
    ]
    drill = _drill_cells(data)
    cells = [
        [
            percent(100 * row["efficiency"]),
            drill[row["problem"]],
            _with_speed(row, "pick"),
            _with_speed(row, "oracle"),
            Cell(wording.why(row)),
        ]
        for row in rows
    ]
    return {"table": Table("Worst problems", columns, cells)}


def _with_speed(row: Mapping[str, Any], whose: str, *more: tuple[str, object]) -> Cell:
    speed = wording.tflops(row[f"{whose}_tflops"])
    unit = () if speed == "-" else (("muted", f"{speed} TFLOPS"),)
    return Cell(wording.short_kernel(row[f"{whose}_kernel"], row), tags=(*unit, *more))


def drill_data(data: ReportData) -> str:
    """The kernels of all problems as JSON, for the page's script."""
    down = drill_down_of(data)
    headings = ("95 %", "/ oracle", "rank", "status", *down.facts)
    terms = {heading: anchor(heading) for heading in headings if anchor(heading)}
    more = [{**_about(data, place), "left": down.left_out(place)} for place in range(len(down.problems))]
    return down.document(more, terms)


def _about(data: ReportData, place: int) -> dict[str, Any]:
    row = drill_down_of(data).problems[place]
    return about(row, data.reasons.get(str(row["problem"])), scores=data.ranked_by.order_only)


def _drill_cells(data: ReportData) -> dict[str, Cell]:
    """Problem -> the cell that opens its kernels."""
    problems, written = drill_down_of(data).problems, 0 if data.final.empty else _MOST_WRITTEN
    return {
        str(row["problem"]): Cell(row["problem"], place=place, linked=place < written)
        for place, row in enumerate(problems)
    }


def _details(data: ReportData) -> View | None:
    count = min(_MOST_WRITTEN, len(drill_down_of(data).problems))
    if not count or data.final.empty:
        return None
    return {
        "note": "Times are medians. In a browser with scripts, every problem in the tables opens like this: "
        "click it, or press Enter on it.",
        "problems": [_detail(data, place) for place in range(count)],
    }


def _detail(data: ReportData, place: int) -> View:
    it, down = _about(data, place), drill_down_of(data)
    facts = [
        ("kinds", it["kinds"]),
        ("size", it["operations"]),
        ("efficiency", it["efficiency"]),
        ("lost time", it["lost"]),
        ("why", it["why"]),
        ("the oracle has", it["differs"]),
    ]
    rows = list(down.rows_of(place))
    special = [row for row in rows if down.kernel[row] in (down.picks[place], down.oracles[place])]
    shown = sorted({*rows[:_ROWS_WRITTEN], *special})
    reasons = None
    if it.get("reasons"):
        columns = [Column("feature"), *numbers("pick", "oracle", "adds to the pick")]
        cells = [
            [Cell(name), Cell(pick), Cell(other), Cell(share)] for name, pick, other, share in it["reasons"]
        ]
        caption = f"Why the pick was predicted to be better ({it['advantage']} in all)"
        reasons = Table(caption, columns, cells, narrow=True)
    left = (
        f"{len(rows) - len(shown)} more kernels are listed with scripts. " if len(rows) > len(shown) else ""
    )
    return {
        **it,
        "place": place,
        "facts": [(name, text) for name, text in facts if text],
        "reasons": reasons,
        "table": _kernel_rows(down, place, shown),
        "left": left + down.left_out(place),
    }


def _kernel_rows(down: DrillDown, place: int, shown: Sequence[int]) -> Table:
    """The kernels of a problem; page/report.js makes the same columns."""
    columns = [
        Column("kernel", "name"),
        Column("time, µs", "num", "median of the timed runs"),
        *([_INTERVAL] if down.has_intervals else []),
        Column("/ oracle", "num", "its time / the oracle's"),
        Column("rank", "num", "its place in the model's ranking"),
        Column("status"),
    ]
    columns += [Column("source")] if any(down.sources) else []
    columns += numbers(*down.facts)
    times = {int(down.kernel[row]): int(down.time_ns[row]) for row in down.rows_of(place)}
    oracle_ns = times.get(int(down.oracles[place]), 0)
    cells = []
    for row in shown:
        kernel, time_ns = int(down.kernel[row]), int(down.time_ns[row])
        tags = [
            ("tag", name)
            for name, chosen in (("oracle", down.oracles[place]), ("pick", down.picks[place]))
            if kernel == chosen
        ]
        status = STATUSES[down.status[row]] + (", timed again" if down.again[row] else "")
        detail = down.details[down.detail[row]] if down.detail[row] >= 0 else ""
        permille = int(down.interval_permille[row])
        shown_interval = number(permille if permille >= 0 else None, f"±{permille / 10:.1f} %")
        cells.append(
            [
                Cell(down.kernels[kernel], tags=tuple(tags)),
                number(time_ns if time_ns >= 0 else None, _microseconds(time_ns)),
                *([shown_interval] if down.has_intervals else []),
                number(time_ns / oracle_ns if oracle_ns > 0 <= time_ns else None, _ratio(time_ns, oracle_ns)),
                number(down.rank[row] or None, f"{down.rank[row]:,}"),
                Cell(status, note=detail),
                *([Cell(down.sources[kernel])] if any(down.sources) else []),
                *(
                    number(v[kernel] if v[kernel] >= 0 else None, f"{v[kernel]:,}")
                    for v in down.facts.values()
                ),
            ]
        )
    return Table(f"Kernels of {down.problems[place]['problem']}", columns, cells)


_INTERVAL = Column("95 %", "num", "half of the 95 % interval of the median")


def _microseconds(time_ns: int) -> str:
    return f"{time_ns / 1e3:,.2f}"


def _ratio(time_ns: int, oracle_ns: int) -> str:
    return f"{time_ns / oracle_ns:.3f}" if oracle_ns > 0 else ""


def _slices(data: ReportData) -> View | None:
    if data.slices.empty or data.slices["oracle_over_median"].isna().all():
        return None
    columns = [
        Column("kind"),
        *numbers("problems", "covered", "mean", "P10", "min", "oracle / median kernel"),
    ]
    cells = [
        [
            Cell(row["slice"]),
            whole(row["problems"]),
            whole(row["covered"]),
            *(percent(row[name]) for name in ("mean_percent", "p10_percent", "min_percent")),
            times(row["oracle_over_median"]),
        ]
        for row in wording.rows(data.slices)
    ]
    return {"table": Table("Efficiency by kind of problem", columns, cells, narrow=True, sortable=True)}


def _heat(data: ReportData) -> View | None:
    found = heat_map(data.final, data.selection)
    if not found.groups:
        return None
    heads = [
        Column(kind, "num", f"{wording.count(n, 'problem')} with an oracle")
        for kind, n in found.kinds.items()
    ]
    rows = [
        [Cell(group), *(_shade(shares[kind]) for kind in found.kinds)]
        for group, shares in list(found.groups.items())[:_MOST_GROUPS]
    ]
    more = len(found.groups) - len(rows)
    note = (
        f"Share of the problems on which the best kernel of a group is within {100 * WITHIN:.0f} % of the "
        "oracle. A group has one pipeline and tile, or one function of a source."
    )
    if more:
        note += f" {wording.count(more, 'further group')} are near the oracle less often."
    caption = "Groups of kernels near the oracle, by kind of problem"
    return {
        "note": note,
        "table": Table(caption, [Column("group", "name"), *heads], rows, "heat-map", sortable=True),
    }


def _shade(share: float) -> Cell:
    return Cell(f"{100.0 * share:.0f} %", f"{share:.4f}", heat=round(10.0 * share))


def _choice(data: ReportData) -> View | None:
    selection = data.selection[data.selection["oracle_tflops"].notna()]
    if selection.empty:
        return None
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
        [Cell(name), *(times(float(np.percentile(values, q))) for q in (0, 10, 50, 90, 100))]
        for name, values, _ in curves
    ]
    columns = [Column("ratio of TFLOPS"), *numbers("min", "P10", "median", "P90", "max")]
    return {"chart": Markup(chart), "table": Table("Speed-up of the oracle", columns, rows, narrow=True)}


def _sources(data: ReportData) -> View | None:
    by_problem = data.by_source
    figures = source_figures(by_problem)
    if not figures:
        return None
    columns = [
        Column("source"),
        Column("fastest on", "num", "problems whose oracle is its"),
        Column("problems", "num", "problems on which it has an ok kernel"),
        Column("geometric mean", "num", "of its best kernel's TFLOPS / the oracle's"),
        Column("worst", "num", "the least of these"),
    ]
    rows = [
        [
            Cell(one.source),
            *(whole(one.wins), whole(one.problems)),
            *(percent(one.mean_percent), percent(one.worst_percent)),
        ]
        for one in figures
    ]
    names = [one.source for one in figures]
    lead = Column("lead", "num", "the oracle's TFLOPS / those of the best kernel of the other sources")
    cells = [
        [
            Cell(row["problem"]),
            Cell(row["winner"]),
            times(row["lead"]),
            *(percent(100.0 * row[name]) for name in names),
        ]
        for row in wording.rows(by_problem)
    ]
    heads = [Column("problem", "name"), Column("fastest"), lead, *numbers(*names)]
    return {
        "table": Table("Sources of kernels", columns, rows, narrow=True),
        "problems": Table(
            "Best kernel of each source / oracle, greatest lead first",
            *(heads, cells),
            name="sources-by-problem",
            sortable=True,
        ),
    }


_STATUS_CSS = {
    "ok": "s-ok",
    "unsupported": "s-other",
    **dict.fromkeys(("wrong", "flaky", "crash", "timeout", "build_error"), "s-bad"),
}


def _pairs(data: ReportData) -> View:
    counts = wording.status_counts(data)
    if not counts:
        return {"table": None}
    total = sum(pairs for _, pairs in counts)
    bar = charts.stacked_bar([(status, pairs, _STATUS_CSS.get(status, "s-warn")) for status, pairs in counts])
    rows = [[Cell(status), whole(pairs), percent(100.0 * pairs / total)] for status, pairs in counts]
    columns = [Column("status"), *numbers("pairs", "share")]
    groups = (
        ("Failures", data.verdict.new_failures),
        ("Known failures", data.verdict.known_failures),
        ("Healed", data.verdict.healed),
    )
    return {
        "chart": Markup(bar),
        "table": Table("Pairs by status", columns, rows, narrow=True),
        "failures": [_failures(caption, failures) for caption, failures in groups if failures],
    }


def _failures(caption: str, failures: Sequence[Failure]) -> View:
    columns = [
        Column("status"),
        Column("kernel", "name"),
        Column("problem", "name"),
        Column("detail", "detail"),
    ]
    rows = []
    for one in failures[:_MOST_FAILURES]:
        status = one.status if one.known in (None, one.status) else f"{one.status} (was {one.known})"
        rows.append([Cell(status), Cell(wording.kernel_on(one)), Cell(one.problem), Cell(one.detail)])
    name = caption.lower().replace(" ", "-")
    more = len(failures) - len(rows)
    return {
        "table": Table(caption, columns, rows, name=name, sortable=True),
        "count": f"{len(failures):,}",
        "more": f"{more:,}" if more else "",
    }


def _problems(data: ReportData) -> View | None:
    selection = data.selection.sort_values(["efficiency", "problem"], na_position="first")
    if selection.empty:
        return None
    columns = [
        Column("problem", "name"),
        Column("GFLOP", "num"),
        Column("efficiency", "num", "TFLOPS of the pick / TFLOPS of the oracle"),
        Column("pick", "name"),
        Column("oracle", "name"),
        Column("TFLOPS", "num", "of the oracle"),
        Column("rank", "num", "place of the oracle in the model's ranking"),
        Column("ok", "num", "kernels that are ok, of those measured"),
        Column("/ median", "num", "TFLOPS of the oracle / of the median ok kernel"),
    ]
    drill = _drill_cells(data)
    rows = [_problem_cells(row, drill[row["problem"]]) for row in wording.rows(selection)]
    table = Table("All problems, worst first", columns, rows, name="all-problems", sortable=True)
    return {"table": table}


def _problem_cells(row: Mapping[str, Any], problem: Cell) -> list[Cell]:
    if row["coverage"] == COVERED:
        share = 100 * row["efficiency"]
        efficiency = Cell(wording.percent(share), f"{share:.9g}", meter=f"{share:.1f}")
    else:
        efficiency = Cell(row["coverage"], "", css="hold")
    marks = []
    if not pd.isna(row["pick_status"]) and row["pick_status"] != "ok":
        marks.append(("fail", row["pick_status"]))
    if row["in_sample"]:
        marks.append(("hold", "in-sample"))
    ratio = row["oracle_tflops"] / row["median_tflops"] if row["oracle_tflops"] > 0 else None
    return [
        problem,
        number(row["flops"], _gflop(row["flops"])),
        efficiency,
        _with_speed(row, "pick", *marks),
        Cell(wording.short_kernel(row["oracle_kernel"], row)),
        tflops(row["oracle_tflops"]),
        whole(row["oracle_rank"]),
        Cell(f"{row['kernels_ok']:,} / {row['kernels_measured']:,}", str(row["kernels_ok"])),
        times(ratio),
    ]


def _kernels(data: ReportData) -> View | None:
    kernels = data.kernels
    if kernels.empty:
        return None
    columns = [
        Column("kernel", "name"),
        Column("oracle of", "num", "problems where it is the oracle"),
        Column("pick of", "num", "problems where it is the pick"),
        Column("ok", "num", "problems where it is ok"),
        Column("not ok", "num", "measured problems where it is not"),
        Column("mean efficiency", "num", "mean of its TFLOPS / the oracle's, where it is ok"),
    ]
    facts = _code_facts(data.final)
    columns += [Column(heading, "num", _CODE_FACTS[heading][1]) for heading in facts]
    rows = [
        [
            Cell(row["kernel"]),
            *(whole(row[name]) for name in ("oracles", "picks", "ok", "not_ok")),
            percent(100.0 * row["mean_efficiency"]),
            *(whole(values.get(row["kernel"])) for values in facts.values()),
        ]
        for row in wording.rows(kernels.head(_MOST_KERNELS))
    ]
    winners = int((kernels["oracles"] > 0).sum())
    note = f"{winners:,} of {wording.count(len(kernels), 'kernel')} are the oracle of some problem."
    if len(kernels) > _MOST_KERNELS:
        note += f" The first {_MOST_KERNELS} are listed."
    table = Table("Kernels, most oracles first", columns, rows, name="all-kernels", sortable=True)
    return {"note": note, "table": table}


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
    """Heading -> kernel -> value; columns of GPUs only if the records have values."""
    if "vgprs" not in final or final["vgprs"].isna().all():
        return {}
    named = {heading: name for heading, (name, _) in _CODE_FACTS.items() if name in final}
    first = final.groupby("kernel", observed=True)[list(named.values())].first()
    return {
        heading: {str(kernel): float(value) for kernel, value in first[name].dropna().items()}
        for heading, name in named.items()
    }


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
        length=found.seconds / scale,
        x_name=f"{unit} since the start",
        y_name="time, %",
    )
    note = (
        f"{found.seconds / scale:,.1f} {unit}: the device ran timed kernels in "
        f"{wording.percent(found.busy_percent)} of the time and waited for compilers in "
        f"{wording.percent(found.compiling_percent)}. The rest is loading, checks of results, and waiting. "
        "With several workers the shares add up."
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


def _sorted_points(values: Sequence[float]) -> list[tuple[float, float]]:
    """Ascending values over the cumulative share in percent; a single value is a horizontal line."""
    if len(values) == 1:
        return [(0.0, values[0]), (100.0, values[0])]
    return [(100.0 * place / (len(values) - 1), value) for place, value in enumerate(values)]


def _low_end(values: Sequence[float]) -> float:
    """The lower end of an axis up to 100 % on which all values fit: 0, 50, 80 or 90."""
    lowest = min(values)
    return next(low for low in (90.0, 80.0, 50.0, 0.0) if lowest >= low)


def _gflop(flops: float) -> str:
    return f"{flops / 1e9:.3g}" if flops < 1e12 else f"{flops / 1e9:,.0f}"


SECTIONS: tuple[tuple[str, str, Callable[[ReportData], View | None]], ...] = (
    ("answers", "Summary", _answers),
    ("verdict", "Verdict", _verdict),
    ("pictures", "Time and limits", _pictures),
    ("efficiency", "Efficiency", _efficiency),
    ("worst", "Worst problems", _worst),
    ("details", "Kernels of the most costly problems", _details),
    ("slices", "Kinds of problem", _slices),
    ("heat", "Kernels by kind of problem", _heat),
    ("choice", "Gain from the choice of kernel", _choice),
    ("sources", "Sources of kernels", _sources),
    ("pairs", "Pairs by status", _pairs),
    ("problems", "Problems", _problems),
    ("kernels", "Kernels", _kernels),
    ("timeline", "Timeline of the session", _timeline),
    ("terms", "Terms", _terms),
    ("environment", "Environment and options", _environment),
)
"""For each section: its id, which is its macro in page/sections.html, its heading and its view. A section
whose view is None is left out."""
