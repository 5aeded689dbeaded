"""The problems of report.html by lost time, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from tile_oracle.judge.selection import COVERED
from tile_oracle.judge.slices import slices_of
from tile_oracle.pages import words
from tile_oracle.pages.tables import Cell, Column, Made, Table, View, number, tflops, times, whole
from tile_oracle.problem import problem_from_id
from tile_oracle.report import wording
from tile_oracle.report.answers import kind_anchor, problem_anchor
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import drill_down_of
from tile_oracle.report.lost_time import losing_slices


def problems(data: ReportData) -> View:
    """Returns every problem with its pick and its oracle, most lost time first, and the address of the one
    that the summary names."""
    table, down = problem_table(data), drill_down_of(data)
    named = next((row for row in down.problems if row["lost_us"] > 0), {"problem": ""})
    return {"table": table, "named": problem_anchor(str(named["problem"]))} if table.rows else {}


def problem_table(data: ReportData, most: int | None = None) -> Table:
    """Returns the problems by lost time: failed picks, those that lose time, the others. most: only so many,
    with why their picks fall short."""
    rows = list(drill_down_of(data).problems) if len(data.selection) else []
    rows = (
        rows
        if most is None
        else [row for row in rows[:most] if row["coverage"] == COVERED and row["efficiency"] < 1]
    )
    drill, choices = drill_cells(data), _choices(data)
    members = [problems for options in choices.values() for problems in options.values()]
    marks = {
        row["problem"]: " ".join(str(at) for at, one in enumerate(members) if row["problem"] in one)
        for row in rows
    }
    total = sum(data.lost["lost_us"])
    columns: list[Made] = [
        (Column("problem", "id"), lambda row: replace(drill[row["problem"]], marks=marks[row["problem"]])),
        (Column("efficiency", "num", "TFLOPS of the pick / TFLOPS of the oracle"), _efficiency),
        (_LOST, lambda row: _lost(row["lost_us"], total)),
        (Column("pick", "name"), lambda row: _kernel(row, "pick", *_marks(row))),
        (Column("oracle", "name"), lambda row: _kernel(row, "oracle")),
        (Column("TFLOPS", "num", "of the oracle"), lambda row: tflops(row["oracle_tflops"])),
    ]
    more: list[Made] = [
        (Column("FLOP", "num"), lambda row: number(row["flops"], words.amount(row["flops"]))),
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
    columns += more if most is None else [(Column("why", "detail"), lambda row: Cell(wording.why(row)))]
    offered = [(name, [(kind_anchor(one), one) for one in options]) for name, options in choices.items()]
    options = {"name": "all-problems", "sortable": True, "filter": "problems", "choices": offered}
    return Table.of("Problems, most lost time first", rows, columns, **options)


_LOST = Column(
    "lost, µs", "num", "time of the pick - time of the oracle; the bar is its share of all lost time"
)


def _lost(lost_us: float, total_us: float) -> Cell:
    shown = number(lost_us, words.microseconds(lost_us))
    return replace(shown, meter=f"{100.0 * lost_us / total_us:.1f}") if lost_us > 0 else shown


def _choices(data: ReportData) -> dict[str, dict[str, set[str]]]:
    """Returns what the problems can be filtered by -> option -> its problems: their kinds, with those that
    the summary combines, and, of several sources of kernels, the fastest."""
    ids = [str(problem) for problem in data.selection["problem"]]
    of = {one: set(slices_of(problem_from_id(one))) for one in ids}
    kinds = {name: {one for one in ids if name in of[one]} for name in data.slices["slice"]}
    for loss in losing_slices(data.lost):
        kinds[loss.name] = set.intersection(*(kinds[kind] for kind in loss.kinds))
    sources = {} if data.by_source.empty else data.by_source.groupby("winner")["problem"].agg(set).to_dict()
    return {name: options for name, options in (("kind", kinds), ("fastest source", sources)) if options}


def _kernel(row: Mapping[str, Any], whose: str, *tags: tuple[str, object]) -> Cell:
    """Returns a kernel by its short name; its whole one is shown on hover."""
    whole = row[f"{whose}_kernel"]
    short = words.short_name(whole)
    return Cell(short, tags=tags, full="" if pd.isna(whole) or short == whole else str(whole))


def drill_cells(data: ReportData) -> dict[str, Cell]:
    """Problem -> the cell that opens its kernels."""
    down = drill_down_of(data)
    return {
        str(row["problem"]): Cell(str(row["problem"]), place=place) for place, row in enumerate(down.problems)
    }


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
