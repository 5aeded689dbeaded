"""The sections of report.html on kernels: by kind of problem, by source, by status, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from tile_oracle.judge.failures import Failure
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
    numbers,
    percent,
    times,
    whole,
)
from tile_oracle.problem import problem_from_id
from tile_oracle.report import pictures, wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.drill_down import kernel_facts
from tile_oracle.report.lost_time import shares_by_kind
from tile_oracle.report.problem_views import drill_cells
from tile_oracle.report.sources import source_figures

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


def efficiency(data: ReportData) -> Sequence[Block]:
    """Returns how many picks are how near to the oracle, and how well their times were predicted."""
    if data.covered.empty:
        return []
    predicted = pictures.predicted_measured(data)
    profile = "Performance profile: problems within a factor of the oracle's time"
    pairs = [("Predicted against measured TFLOPS of the picks", predicted)] if predicted else []
    return [Figures([(profile, pictures.performance_profile(data)), *pairs])]


def limits(data: ReportData) -> Sequence[Block]:
    """Returns how near the oracles are to the limits of the device."""
    if not data.selection["oracle_tflops"].notna().any():
        return []
    roof, note = pictures.roofline(data)
    return [*([Figures([("Roofline of the oracles", roof)])] if roof else []), Note(note)]
