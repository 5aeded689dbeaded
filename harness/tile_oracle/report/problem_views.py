"""The sections of report.html on problems: the worst, all of them, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tile_oracle.judge.selection import COVERED
from tile_oracle.pages import words
from tile_oracle.pages.tables import (
    Block,
    Cell,
    Column,
    Made,
    Note,
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


def worst(data: ReportData) -> Sequence[Block]:
    """The picks of least efficiency."""
    rows = wording.worst_rows(data, _WORST)
    if not rows:
        return [Note("Every pick is as fast as the oracle.")] if data.efficiency.covered else []
    drill, lost = drill_cells(data), _lost_us(data)
    columns: list[Made] = [
        (Column("efficiency", "num"), lambda row: percent(100 * row["efficiency"])),
        (Column("problem", "id"), lambda row: drill[row["problem"]]),
        (_LOST, lambda row: _time(lost.get(row["problem"]))),
        (Column("pick", "name"), lambda row: _kernel(row, "pick")),
        (Column("TFLOPS", "num", "of the pick"), lambda row: tflops(row["pick_tflops"])),
        (Column("oracle", "name"), lambda row: _kernel(row, "oracle")),
        (Column("TFLOPS", "num", "of the oracle"), lambda row: tflops(row["oracle_tflops"])),
        (Column("why", "detail"), lambda row: Cell(wording.why(row))),
    ]
    return [Table.of("Worst problems", rows, columns)]


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


def details(data: ReportData) -> View:
    """The kernels of the problems that a page shows first, for readers without scripts."""
    written = _written(data)
    if not written:
        return {}
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


def problems(data: ReportData) -> Sequence[Block]:
    """Every problem with its pick and its oracle."""
    selection = data.selection.sort_values(["efficiency", "problem"], na_position="first")
    drill, lost = drill_cells(data), _lost_us(data)
    columns: list[Made] = [
        (Column("problem", "id"), lambda row: drill[row["problem"]]),
        (Column("FLOP", "num"), lambda row: number(row["flops"], words.amount(row["flops"]))),
        (Column("efficiency", "num", "TFLOPS of the pick / TFLOPS of the oracle"), _efficiency),
        (_LOST, lambda row: _time(lost.get(row["problem"]))),
        (Column("pick", "name"), lambda row: _kernel(row, "pick", *_marks(row))),
        (Column("oracle", "name"), lambda row: _kernel(row, "oracle")),
        (Column("TFLOPS", "num", "of the oracle"), lambda row: tflops(row["oracle_tflops"])),
        (
            Column("rank", "num", "place of the oracle in the model's ranking"),
            lambda row: whole(row["oracle_rank"]),
        ),
        (
            Column("ok", "num", "kernels that are ok, of those measured"),
            lambda row: Cell(f"{row['kernels_ok']:,} / {row['kernels_measured']:,}", str(row["kernels_ok"])),
        ),
        (
            Column("/ median", "num", "TFLOPS of the oracle / of the median ok kernel"),
            lambda row: times(
                row["oracle_tflops"] / row["median_tflops"] if row["oracle_tflops"] > 0 else None
            ),
        ),
    ]
    rows, caption = wording.rows(selection), "All problems, worst first"
    table = Table.of(caption, rows, columns, name="all-problems", sortable=True, filter="problems")
    return [table] if rows else []


def _efficiency(row: Mapping[str, Any]) -> Cell:
    if row["coverage"] != COVERED:
        return Cell(row["coverage"], "", css="hold")
    share = 100 * row["efficiency"]
    return Cell(words.percent(share), f"{share:.9g}", meter=f"{share:.1f}")


def _marks(row: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Tags of a pick that failed, or is in-sample."""
    failed = not pd.isna(row["pick_status"]) and row["pick_status"] != "ok"
    marks: list[tuple[str, object]] = [("fail", row["pick_status"])] if failed else []
    return [*marks, *([("hold", "in-sample")] if row["in_sample"] else [])]
