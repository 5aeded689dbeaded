"""The sections of report.html on problems and kernels: by lost time, kind of problem, source and status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from tile_oracle.judge.failures import Failure
from tile_oracle.judge.selection import COVERED
from tile_oracle.judge.slices import slices_of
from tile_oracle.operation import operation_named
from tile_oracle.pages import words
from tile_oracle.pages.tables import (
    Block,
    Cell,
    Column,
    Figures,
    Made,
    Note,
    Table,
    View,
    number,
    numbers,
    percent,
    tflops,
    times,
    whole,
)
from tile_oracle.problem import problem_from_id
from tile_oracle.report import pictures, wording
from tile_oracle.report.answers import kind_anchor, problem_anchor
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import drill_down_of, kernel_facts
from tile_oracle.report.lost_time import losing_slices, shares_by_kind
from tile_oracle.report.sources import source_figures


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
    if most is not None:
        rows = [row for row in rows[:most] if row["coverage"] == COVERED and row["efficiency"] < 1]
    drill, choices = drill_cells(data), _choices(data) if most is None else {}
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


_MOST_FAILURES = 500
_MOST_KERNELS = 500
_FACTS = ("registers", "LDS bytes", "spills", "workgroups/CU", "matrix instr.", "binary bytes")


def slices(data: ReportData) -> Sequence[Block]:
    """Returns the efficiency by kind of problem."""
    if data.slices.empty or data.slices["oracle_over_median"].isna().all():
        return []
    note = "A problem can be of several kinds, so the shares of the lost time add up to more than 100 %."
    return [Note(note), slice_view(data)]


def slice_view(data: ReportData) -> Table:
    """Returns a row for each kind of problem."""
    lost = shares_by_kind(data.lost)
    judged: list[Made] = [
        (Column("covered", "num"), lambda row: whole(row["covered"])),
        (Column("mean", "num"), lambda row: percent(row["mean_percent"])),
        (Column("P10", "num"), lambda row: percent(row["p10_percent"])),
        (Column("min", "num"), lambda row: percent(row["min_percent"])),
    ]
    time = Column("lost time", "num", "share of the time that all picks lose")
    columns: list[Made] = [
        (Column("kind"), lambda row: Cell(row["slice"])),
        (Column("problems", "num"), lambda row: whole(row["problems"])),
        *(judged if data.efficiency.covered else ()),
        *([(time, lambda row: _barred(lost.get(row["slice"])))] if lost else ()),
        (
            Column("oracle / median kernel", "num", "median of the ratio of TFLOPS"),
            lambda row: times(row["oracle_over_median"]),
        ),
    ]
    rows = wording.rows(data.slices)
    return Table.of("Efficiency by kind of problem", rows, columns, narrow=True, sortable=True)


def _barred(share: float | None) -> Cell:
    if share is None:
        return percent(None)
    return replace(percent(share), meter=f"{share:.1f}")


def sources(data: ReportData) -> Sequence[Block]:
    """Returns the sources of kernels beside each other, and which is fastest where; none for a single one."""
    figures = source_figures(data.by_source)
    if not figures:
        return []
    mean = Column("its best / oracle, mean", "num", "geometric mean of its best TFLOPS / the oracle's")
    columns: list[Made] = [
        (Column("source"), lambda one: Cell(one.source)),
        (Column("fastest on", "num", "problems whose oracle is its"), lambda one: whole(one.wins)),
        (Column("problems", "num", "problems on which it has an ok kernel"), lambda one: whole(one.problems)),
        (mean, lambda one: percent(one.mean_percent)),
        (Column("worst", "num", "the least of these"), lambda one: percent(one.worst_percent)),
    ]
    return [Table.of("Sources of kernels", figures, columns, narrow=True), *_who_wins_where(data)]


def _who_wins_where(data: ReportData) -> Iterator[Block]:
    """Yields each source's share of the problems of a size, or of an arithmetic intensity, that it is fastest
    on."""
    winner = data.by_source.set_index("problem")["winner"]
    problems = [problem_from_id(str(name)) for name in winner.index]
    bands = operation_named(problems[0].op).bands
    inside = {name: [belongs(problem) for problem in problems] for name, belongs in bands.items()}
    inside = {name: mask for name, mask in inside.items() if any(mask)}
    heads = [
        Column(name, "num", f"{words.count(sum(mask), 'problem')} of this band")
        for name, mask in inside.items()
    ]
    rows = [
        [Cell(one.source), *(_won(winner[mask] == one.source) for mask in inside.values())]
        for one in source_figures(data.by_source)
    ]
    yield Note("Who wins where: share of the problems on which a source has the fastest kernel.", scale=True)
    yield Table(
        "Who wins where, by size of problem", [Column("source"), *heads], rows, "who-wins", narrow=True
    )


def _won(won: pd.Series) -> Cell:
    share = float(won.mean())
    note = f"{int(won.sum())} of {len(won)}"
    return Cell(f"{100.0 * share:.0f} %", f"{share:.4f}", heat=round(5.0 * share), note=note)


def pairs(data: ReportData) -> Sequence[Block]:
    """Returns the pairs by status, and the failures."""
    counts = wording.status_counts(data)
    if not counts:
        return [Note("No pair was measured.")]
    total = sum(pairs for _, pairs in counts)
    rows = [[Cell(status), whole(pairs), _barred(100.0 * pairs / total)] for status, pairs in counts]
    groups = (
        ("Failures", data.verdict.new_failures),
        ("Known failures", data.verdict.known_failures),
        ("Healed", data.verdict.healed),
    )
    return [
        Table("Pairs by status", [Column("status"), *numbers("pairs", "share")], rows, narrow=True),
        *(block for caption, failures in groups if failures for block in _failures(data, caption, failures)),
    ]


def _failures(data: ReportData, caption: str, failures: Sequence[Failure]) -> Iterator[Block]:
    drill = drill_cells(data)
    columns: list[Made] = [
        (
            Column("status"),
            lambda one: Cell(one.status + ("" if one.known in (None, one.status) else f" (was {one.known})")),
        ),
        (Column("kernel", "name"), lambda one: Cell(words.short_name(one.kernel), full=one.kernel)),
        (Column("problem", "id"), lambda one: drill.get(one.problem, Cell(one.problem))),
        (Column("detail", "detail"), lambda one: Cell(one.detail)),
    ]
    name, heading = caption.lower().replace(" ", "-"), f"{caption} ({len(failures):,})"
    options = {"name": name, "sortable": True, "filter": "failures", "heading": heading}
    yield Table.of(caption, failures[:_MOST_FAILURES], columns, **options)
    if len(failures) > _MOST_FAILURES:
        yield Note(f"and {len(failures) - _MOST_FAILURES:,} more: all are in the measurements")


def kernels(data: ReportData) -> Sequence[Block]:
    """Returns every kernel: where it is oracle, pick and ok."""
    kernels = data.kernels
    if kernels.empty:
        return []
    shown = wording.rows(kernels.head(_MOST_KERNELS))
    counts = {
        "oracles": Column("oracle of", "num", "problems where it is the oracle"),
        "picks": Column("pick of", "num", "problems where it is the pick"),
        "ok": Column("ok", "num", "problems where it is ok"),
        "not_ok": Column("not ok", "num", "measured problems where it is not"),
    }
    mean = Column("mean efficiency", "num", "mean of its TFLOPS / the oracle's, where it is ok")
    columns: list[Made] = [
        (
            Column("kernel", "name"),
            lambda row: Cell(words.short_name(row["kernel"]), full=row["kernel"]),
        ),
        *((column, lambda row, name=name: whole(row[name])) for name, column in counts.items()),
        (mean, lambda row: percent(100.0 * row["mean_efficiency"])),
        *(
            (Column(heading, "num"), lambda row, of=of: whole(of.get(row["kernel"])))
            for heading, of in kernel_facts(data.final, _FACTS).items()
        ),
    ]
    winners = int((kernels["oracles"] > 0).sum())
    note = f"{winners:,} of {words.count(len(kernels), 'kernel')} are the oracle of some problem."
    if len(kernels) > _MOST_KERNELS:
        note += f" The first {_MOST_KERNELS} are listed."
    options = {"name": "all-kernels", "sortable": True, "filter": "kernels"}
    return [Note(note), Table.of("Kernels, most oracles first", shown, columns, **options)]


def predictions(data: ReportData) -> Sequence[Block]:
    """Returns how well the speed of the picks was predicted."""
    chart = None if data.covered.empty else pictures.predicted_measured(data)
    return [Figures([("Measured TFLOPS of the picks over predicted", chart)])] if chart else []


def limits(data: ReportData) -> Sequence[Block]:
    """Returns how near the oracles are to the limits of the device."""
    if not data.selection["oracle_tflops"].notna().any():
        return []
    roof, note = pictures.roofline(data)
    return [*([Figures([("Roofline of the oracles", roof)])] if roof else []), Note(note)]
