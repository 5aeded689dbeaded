"""The sections of report.html on problems: the worst, all of them, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping
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
    percent,
    tflops,
    times,
    whole,
)
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import about, drill_down_of
from tile_oracle.report.lost_time import lost_times

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
    it, down = about(data, place), drill_down_of(data)
    rows, lost = down.rows[place], down.problems[place]["lost_us"]
    shown = [row for at, row in enumerate(rows) if at < _ROWS_WRITTEN or row.tags]
    more = len(rows) - len(shown)
    return {
        **it,
        "place": place,
        "share": f"{100.0 * lost / total_us:.1f}" if lost > 0 else "",
        "table": down.table(place, shown),
        "left": (f"{more} more kernels are listed with scripts. " if more else "") + it["left"],
    }


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
