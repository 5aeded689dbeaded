"""The sections of report.html on problems: the worst, all of them, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tile_oracle.record.schema import STATUSES
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import DrillDown, about, drill_down_of
from tile_oracle.report.page_table import (
    Cell,
    Column,
    Table,
    View,
    number,
    numbers,
    percent,
    tflops,
    times,
    whole,
)
from tile_oracle.report.terms import anchor
from tile_oracle.selection import COVERED

_MOST_WRITTEN, _ROWS_WRITTEN = 15, 8
"""Problems whose kernels are in the page without a script, and kernels of each."""


def worst(data: ReportData) -> View | None:
    """The picks of least efficiency."""
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


def details(data: ReportData) -> View | None:
    """The kernels of the problems that lose the most time, for readers without scripts."""
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
        status = STATUSES[down.status[row]] + (_AGAIN if down.again[row] else "")
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
_AGAIN = ",\N{NO-BREAK SPACE}timed\N{NO-BREAK SPACE}again"


def _microseconds(time_ns: int) -> str:
    return f"{time_ns / 1e3:,.2f}"


def _ratio(time_ns: int, oracle_ns: int) -> str:
    return f"{time_ns / oracle_ns:.3f}" if oracle_ns > 0 else ""


def problems(data: ReportData) -> View | None:
    """Every problem with its pick and its oracle."""
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


def _gflop(flops: float) -> str:
    return f"{flops / 1e9:.3g}" if flops < 1e12 else f"{flops / 1e9:,.0f}"
