"""The sections of report.html on problems: the worst, all of them, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tile_oracle.judge.selection import COVERED
from tile_oracle.pages import words
from tile_oracle.pages.tables import (
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
from tile_oracle.record.schema import STATUSES
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import DrillDown, about, drill_down_of
from tile_oracle.report.lost_time import lost_times
from tile_oracle.report.terms import anchor, word_patterns

_WORST = 10
_MOST_WRITTEN, _ROWS_WRITTEN = 15, 8
"""The most costly problems whose kernels are in the page without a script, and kernels of each."""


def worst(data: ReportData) -> View | None:
    """The picks of least efficiency."""
    rows = wording.worst_rows(data, _WORST)
    if not rows:
        return {"table": None} if data.efficiency.covered else None
    columns = [
        Column("efficiency", "num"),
        Column("problem", "id"),
        _LOST,
        Column("pick", "name"),
        Column("TFLOPS", "num", "of the pick"),
        Column("oracle", "name"),
        Column("TFLOPS", "num", "of the oracle"),
        Column("why", "detail"),
    ]
    drill, lost = drill_cells(data), _lost_us(data)
    cells = [
        [
            percent(100 * row["efficiency"]),
            drill[row["problem"]],
            _time(lost.get(row["problem"])),
            _kernel(row, "pick"),
            tflops(row["pick_tflops"]),
            _kernel(row, "oracle"),
            tflops(row["oracle_tflops"]),
            Cell(wording.why(row)),
        ]
        for row in rows
    ]
    return {"table": Table("Worst problems", columns, cells)}


_LOST = Column("lost, µs", "num", "time of the pick - time of the oracle")


def _lost_us(data: ReportData) -> dict[str, float]:
    """Problem -> time that its pick loses."""
    lost = lost_times(data.selection)
    return dict(zip(lost["problem"], lost["lost_us"], strict=True))


def _time(microseconds: float | None) -> Cell:
    return number(microseconds, words.microseconds(microseconds))


def _kernel(row: Mapping[str, Any], whose: str, *tags: tuple[str, object]) -> Cell:
    """A kernel by its short name; its whole one is shown on hover."""
    whole, short = row[f"{whose}_kernel"], wording.short_kernel(row[f"{whose}_kernel"], row)
    return Cell(short, tags=tags, full="" if pd.isna(whole) or short == whole else str(whole))


def drill_data(data: ReportData) -> str:
    """The kernels of all problems as JSON, for the page's script."""
    down = drill_down_of(data)
    headings = ("95 %", "/ oracle", "rank", "status", *down.facts)
    terms = {heading: anchor(heading) for heading in headings if anchor(heading)}
    more = [{**_about(data, place), "left": down.left_out(place)} for place in range(len(down.problems))]
    words = word_patterns(str(down.problems[0]["op"])) if down.problems else []
    return down.document(more, terms, words)


def _about(data: ReportData, place: int) -> dict[str, Any]:
    row = drill_down_of(data).problems[place]
    return about(row, data.reasons.get(str(row["problem"])), scores=data.ranked_by.order_only)


def drill_cells(data: ReportData) -> dict[str, Cell]:
    """Problem -> the cell that opens its kernels."""
    links = {place: f"#problem-{place}" for place in _written(data)}
    return {
        str(row["problem"]): Cell(row["problem"], place=place, href=links.get(place, ""))
        for place, row in enumerate(drill_down_of(data).problems)
    }


def _written(data: ReportData) -> list[int]:
    """The places of the problems whose kernels are in the page without a script: the most costly ones, and
    those of the least efficiency."""
    if data.final.empty:
        return []
    names = [str(row["problem"]) for row in drill_down_of(data).problems]
    worst = {str(row["problem"]) for row in wording.worst_rows(data, _WORST)}
    return [place for place, name in enumerate(names) if place < _MOST_WRITTEN or name in worst]


def details(data: ReportData) -> View | None:
    """The kernels of the problems that a page shows first, for readers without scripts."""
    written = _written(data)
    if not written:
        return None
    total = sum(_lost_us(data).values())
    return {
        "note": "Most lost time first. With scripts, a click or Enter on any problem of this page opens its "
        "kernels like this.",
        "problems": [_detail(data, place, total) for place in written],
    }


def _detail(data: ReportData, place: int, total_us: float) -> View:
    it, down = _about(data, place), drill_down_of(data)
    facts = [
        ("kinds", it["kinds"]),
        ("size", it["operations"]),
        ("efficiency", it["efficiency"]),
        ("lost time", it["lost"]),
        ("why", it["why"]),
    ]
    rows = list(down.rows_of(place))
    special = [row for row in rows if down.kernel[row] in (down.picks[place], down.oracles[place])]
    shown = sorted({*rows[:_ROWS_WRITTEN], *special})
    tables = []
    if it["differs"]:
        columns = [Column("field"), *numbers("pick", "oracle")]
        tables.append(Table("Fields in which they differ", columns, _cells(it["differs"]), narrow=True))
    if it.get("reasons"):
        columns = [Column("feature"), *numbers("pick", "oracle", it["adds"]), Column("meaning")]
        tables.append(Table(it["reason"], columns, _cells(it["reasons"]), narrow=True))
    lost = down.problems[place]["lost_us"]
    left = (
        f"{len(rows) - len(shown)} more kernels are listed with scripts. " if len(rows) > len(shown) else ""
    )
    return {
        **it,
        "place": place,
        "facts": [(name, text) for name, text in facts if text],
        "share": f"{100.0 * lost / total_us:.1f}" if lost > 0 else "",
        "tables": tables,
        "table": _kernel_rows(down, place, shown),
        "left": left + down.left_out(place),
    }


def _cells(rows: Sequence[Sequence[object]]) -> list[list[Cell]]:
    return [[Cell(text) for text in row] for row in rows]


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
    digits = down.decimals(place)
    cells = []
    for row in shown:
        kernel, time_ns = int(down.kernel[row]), int(down.time_ns[row])
        tags = [
            ("tag", name)
            for name, chosen in (("oracle", down.oracles[place]), ("pick", down.picks[place]))
            if kernel == chosen
        ]
        detail = down.details[down.detail[row]] if down.detail[row] >= 0 else ""
        notes = [part for part in ("timed again" if down.again[row] else "", detail) if part]
        permille = int(down.interval_permille[row])
        shown_interval = number(permille if permille >= 0 else None, _interval(permille))
        cells.append(
            [
                Cell(down.kernels[kernel], tags=tuple(tags)),
                number(time_ns if time_ns >= 0 else None, f"{time_ns / 1e3:,.{digits}f}"),
                *([shown_interval] if down.has_intervals else []),
                number(time_ns / oracle_ns if oracle_ns > 0 <= time_ns else None, _ratio(time_ns, oracle_ns)),
                number(down.rank[row] or None, f"{down.rank[row]:,}"),
                Cell(STATUSES[down.status[row]], note="; ".join(notes)),
                *([Cell(down.sources[kernel])] if any(down.sources) else []),
                *(
                    number(v[kernel] if v[kernel] >= 0 else None, f"{v[kernel]:,}")
                    for v in down.facts.values()
                ),
            ]
        )
    return Table(f"Kernels of {down.problems[place]['problem']}", columns, cells)


_INTERVAL = Column("95 %", "num", "half of the 95 % interval of the median")


def _interval(permille: int) -> str:
    return f"±{permille / 10:.1f} %" if permille else "<\N{NO-BREAK SPACE}0.1 %"


def _ratio(time_ns: int, oracle_ns: int) -> str:
    return f"{time_ns / oracle_ns:.3f}" if oracle_ns > 0 else ""


def problems(data: ReportData) -> View | None:
    """Every problem with its pick and its oracle."""
    selection = data.selection.sort_values(["efficiency", "problem"], na_position="first")
    if selection.empty:
        return None
    columns = [
        Column("problem", "id"),
        Column("FLOP", "num"),
        Column("efficiency", "num", "TFLOPS of the pick / TFLOPS of the oracle"),
        _LOST,
        Column("pick", "name"),
        Column("oracle", "name"),
        Column("TFLOPS", "num", "of the oracle"),
        Column("rank", "num", "place of the oracle in the model's ranking"),
        Column("ok", "num", "kernels that are ok, of those measured"),
        Column("/ median", "num", "TFLOPS of the oracle / of the median ok kernel"),
    ]
    drill, lost = drill_cells(data), _lost_us(data)
    rows = [
        _problem_cells(row, drill[row["problem"]], lost.get(row["problem"]))
        for row in wording.rows(selection)
    ]
    table = Table("All problems, worst first", columns, rows, name="all-problems", sortable=True)
    return {"table": table}


def _problem_cells(row: Mapping[str, Any], problem: Cell, lost_us: float | None) -> list[Cell]:
    if row["coverage"] == COVERED:
        share = 100 * row["efficiency"]
        efficiency = Cell(words.percent(share), f"{share:.9g}", meter=f"{share:.1f}")
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
        number(row["flops"], words.amount(row["flops"])),
        efficiency,
        _time(lost_us),
        _kernel(row, "pick", *marks),
        _kernel(row, "oracle"),
        tflops(row["oracle_tflops"]),
        whole(row["oracle_rank"]),
        Cell(f"{row['kernels_ok']:,} / {row['kernels_measured']:,}", str(row["kernels_ok"])),
        times(ratio),
    ]
