"""The sections of report.html on kernels: by kind of problem, by source, by status, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from tile_oracle.judge.failures import Failure
from tile_oracle.pages import charts, words
from tile_oracle.pages.tables import (
    Cell,
    Column,
    Table,
    View,
    numbers,
    percent,
    times,
    whole,
)
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.heat_map import ALL, WITHIN, heat_map
from tile_oracle.report.lost_time import lost_times, shares_by_kind
from tile_oracle.report.problem_views import drill_cells
from tile_oracle.report.sources import source_figures

_MOST_FAILURES = 500
_MOST_KERNELS = 500
_MOST_GROUPS = 30


def slices(data: ReportData) -> View | None:
    """Efficiency by kind of problem."""
    if data.slices.empty or data.slices["oracle_over_median"].isna().all():
        return None
    lost = shares_by_kind(lost_times(data.selection))
    judged = bool(data.efficiency.covered)
    columns = [
        Column("kind"),
        *numbers("problems", *(("covered", "mean", "P10", "min") if judged else ())),
        *([Column("lost time", "num", "share of the time that all picks lose")] if lost else []),
        Column("oracle / median kernel", "num", "median of the ratio of TFLOPS"),
    ]
    cells = [
        [
            Cell(row["slice"]),
            whole(row["problems"]),
            *(
                (whole(row["covered"]), *(percent(row[f"{name}_percent"]) for name in ("mean", "p10", "min")))
                if judged
                else ()
            ),
            *([_share_of_time(lost.get(row["slice"]))] if lost else []),
            times(row["oracle_over_median"]),
        ]
        for row in wording.rows(data.slices)
    ]
    return {"table": Table("Efficiency by kind of problem", columns, cells, narrow=True, sortable=True)}


def _share_of_time(share: float | None) -> Cell:
    if share is None:
        return percent(None)
    return replace(percent(share), meter=f"{share:.1f}")


def heat(data: ReportData) -> View | None:
    """Which groups of kernels are near the oracle, by kind of problem."""
    found = heat_map(data.final, data.selection)
    if not found.groups:
        return None
    everything = found.kinds[ALL]
    # A kind that all problems are of would repeat the first column.
    kinds = {kind: n for kind, n in found.kinds.items() if kind == ALL or n < everything}
    heads = [Column(kind, "num", f"{words.count(n, 'problem')} with an oracle") for kind, n in kinds.items()]
    rows = [
        [Cell(group), *(_shade(shares[kind]) for kind in kinds)]
        for group, shares in list(found.groups.items())[:_MOST_GROUPS]
    ]
    more = len(found.groups) - len(rows)
    within = f"within {100 * WITHIN:.0f} % of the oracle."
    if found.of_kernels:
        note = f"Share of the problems on which a kernel is {within}"
    else:
        note = (
            f"Share of the problems on which the best kernel of a group is {within} A group has one pipeline "
            "and tile, or one function of a source."
        )
    if more:
        what = "further kernel" if found.of_kernels else "further group"
        note += f" {words.count(more, what)} are near the oracle less often."
    caption = "Groups of kernels near the oracle, by kind of problem"
    first = Column("kernel" if found.of_kernels else "group", "name")
    return {
        "note": note,
        "table": Table(
            caption,
            [first, *heads],
            rows,
            "heat-map",
            sortable=True,
        ),
    }


def _shade(share: float) -> Cell:
    return Cell(f"{100.0 * share:.0f} %", f"{share:.4f}", heat=round(10.0 * share))


def sources(data: ReportData) -> View | None:
    """The sources of kernels beside each other; None for a single one."""
    by_problem = data.by_source
    figures = source_figures(by_problem)
    if not figures:
        return None
    columns = [
        Column("source"),
        Column("fastest on", "num", "problems whose oracle is its"),
        Column("problems", "num", "problems on which it has an ok kernel"),
        Column("its best / oracle, mean", "num", "geometric mean of its best kernel's TFLOPS / the oracle's"),
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
    drill = drill_cells(data)
    cells = [
        [
            drill[row["problem"]],
            Cell(row["winner"]),
            times(row["lead"]),
            *(percent(100.0 * row[name]) for name in names),
        ]
        for row in wording.rows(by_problem)
    ]
    heads = [Column("problem", "id"), Column("fastest"), lead, *numbers(*names)]
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


def pairs(data: ReportData) -> View:
    """The pairs by status, and the failures."""
    counts = wording.status_counts(data)
    if not counts:
        return {"table": None}
    total = sum(pairs for _, pairs in counts)
    bar = charts.stacked_bar([(status, pairs, _css_of(status)) for status, pairs in counts])
    rows = [
        [Cell(status, swatch=_css_of(status)), whole(pairs), percent(100.0 * pairs / total)]
        for status, pairs in counts
    ]
    columns = [Column("status"), *numbers("pairs", "share")]
    groups = (
        ("Failures", data.verdict.new_failures),
        ("Known failures", data.verdict.known_failures),
        ("Healed", data.verdict.healed),
    )
    return {
        "chart": bar,
        "table": Table("Pairs by status", columns, rows, narrow=True),
        "failures": [_failures(data, caption, failures) for caption, failures in groups if failures],
    }


def _css_of(status: str) -> str:
    return _STATUS_CSS.get(status, "s-warn")


def _failures(data: ReportData, caption: str, failures: Sequence[Failure]) -> View:
    columns = [
        Column("status"),
        Column("kernel", "name"),
        Column("problem", "id"),
        Column("detail", "detail"),
    ]
    rows, drill = [], drill_cells(data)
    for one in failures[:_MOST_FAILURES]:
        status = one.status if one.known in (None, one.status) else f"{one.status} (was {one.known})"
        problem = drill.get(one.problem, Cell(one.problem))
        kernel = Cell(wording.kernel_on(one), full=one.kernel)
        rows.append([Cell(status), kernel, problem, Cell(one.detail)])
    name = caption.lower().replace(" ", "-")
    more = len(failures) - len(rows)
    return {
        "table": Table(caption, columns, rows, name=name, sortable=True),
        "count": f"{len(failures):,}",
        "more": f"{more:,}" if more else "",
    }


def kernels(data: ReportData) -> View | None:
    """Every kernel: where it is oracle, pick and ok."""
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
    shown = wording.rows(kernels.head(_MOST_KERNELS))
    same = len(wording.shared_prefix([str(row["kernel"]) for row in shown]))
    rows = [
        [
            Cell(row["kernel"][same:], full=row["kernel"] if same else ""),
            *(whole(row[name]) for name in ("oracles", "picks", "ok", "not_ok")),
            percent(100.0 * row["mean_efficiency"]),
            *(whole(values.get(row["kernel"])) for values in facts.values()),
        ]
        for row in shown
    ]
    winners = int((kernels["oracles"] > 0).sum())
    note = f"{winners:,} of {words.count(len(kernels), 'kernel')} are the oracle of some problem."
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
