"""A comparison as text, Markdown and JSON; of two pickers, as a paragraph for a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tile_oracle.comparison.compare import (
    FASTER,
    MARGIN_PERCENT,
    OUTCOMES,
    PICK,
    SAME,
    SLOWER,
    UNKNOWN,
    Change,
    Comparison,
    Side,
    compare_sides,
    side_of_records,
)
from tile_oracle.judge.bootstrap import mean, p10, paired_interval
from tile_oracle.judge.selection import COVERED
from tile_oracle.pages.tables import Column, Table, code, numbers, text, text_rows
from tile_oracle.pages.words import LONGEST, change_percent, count, microseconds, one_line, short_name
from tile_oracle.report.lost_time import lost_times, time_weighted_percent
from tile_oracle.terminal.text_table import text_table

SCHEMA = 1
_SHOWN = 20
_SAME = "the same"


def change_text(change: Change | None) -> str:
    """+5.1 % [+4.0, +6.2]."""
    if change is None:
        return "unknown"
    low, high = (change_percent(limit).removesuffix(" %") for limit in (change.low, change.high))
    return f"{change_percent(change.percent)} [{low}, {high}]"


def facts(comparison: Comparison, *, outcomes: bool = True) -> list[tuple[str, str]]:
    """(name, value) of all that is said in one line. outcomes: also the number of problems of each."""
    counts = comparison.counts
    shared = len(comparison.problems)
    sides = (
        ("only old", comparison.gone),
        ("only new", comparison.added),
        ("without a time", comparison.untimed),
    )
    apart = "".join(f", {len(problems):,} {where}" for where, problems in sides if problems)
    found = [
        ("old", f"{comparison.old.name} ({comparison.old.kind})"),
        ("new", f"{comparison.new.name} ({comparison.new.kind})"),
        ("compared", f"{count(shared, 'problem')} by the time of the {comparison.by}{apart}"),
        *((outcome, count(counts[outcome], "problem")) for outcome in OUTCOMES if outcomes),
        ("mean change of time", change_text(comparison.mean)),
        ("all shared pairs", f"{change_text(comparison.alike)}, mean over the pairs that both measured"),
        ("between sessions", f"{comparison.between_percent:.2f} % standard deviation of a pair's time"),
        ("oracles changed", count(len(comparison.oracles_changed), "problem")),
        ("picks changed", _picks(comparison)),
        ("kernels gained", _number_of(comparison.gained)),
        ("kernels lost", _number_of(comparison.lost)),
        ("newly failing", count(len(comparison.failing), "pair")),
    ]
    old, new = comparison.old.made_by, comparison.new.made_by
    found += [
        (name, f"{one_line(old[name], LONGEST)} -> {one_line(new[name], LONGEST)}")
        for name in old
        if name in new and old[name] != new[name] and old[name] and new[name]
    ]
    return found


def changed_table(comparison: Comparison, outcome: str, *, one_kernel: bool = False) -> Table:
    """Returns the problems with an outcome: change, interval, both latencies, both kernels (short).
    one_kernel: in one column, because terminals are narrow; the list of changes has both."""
    rows = []
    for one in comparison.with_outcome(outcome):
        low, high = (change_percent(limit).removesuffix(" %") for limit in (one.change.low, one.change.high))
        old, new = short_names(one.old_kernel, one.new_kernel)
        kernels = [old if new == _SAME else f"{new} (changed)"] if one_kernel else [old, new]
        latencies = (microseconds(1000 * one.old_ms), microseconds(1000 * one.new_ms))
        rows.append(
            [one.problem, change_percent(one.change.percent), f"{low} to {high}", *latencies, *kernels]
        )
    names = ["kernel"] if one_kernel else ["old kernel", "new kernel"]
    figures = numbers("change", "95 % interval", "old, µs", "new, µs")
    columns = [Column("problem", "id"), *figures, *(Column(name, "name") for name in names)]
    return Table(outcome, columns, text_rows(rows))


def lists(comparison: Comparison) -> list[Table]:
    """Returns what changed besides times; some tables have no row."""
    failing = [
        Column("kernel", "name"),
        Column("status", "plain"),
        *numbers("pairs"),
        Column("such as", "id"),
    ]
    moved = [Column("problem", "id"), Column("from", "name"), Column("to", "name")]
    return [
        Table("newly failing", failing, text_rows(_failing(comparison))),
        *(
            Table(name, moved, text_rows([problem, *short_names(*both)] for problem, *both in changed))
            for name, changed in (
                ("oracles changed", comparison.oracles_changed),
                ("picks changed", comparison.picks_changed),
            )
        ),
        *(
            Table(name, [Column("kernel", "name")], text_rows([kernel] for kernel in kernels or ()))
            for name, kernels in (("kernels gained", comparison.gained), ("kernels lost", comparison.lost))
        ),
    ]


def _failing(comparison: Comparison) -> list[list[str]]:
    """Newly failing kernels: kernel, status, how many problems, one of them."""
    grouped = Counter((one.kernel, one.status) for one in comparison.failing)
    example = {(one.kernel, one.status): one.problem for one in reversed(comparison.failing)}
    order = sorted(grouped, key=lambda key: (-grouped[key], key))
    return [
        [kernel, status, str(grouped[kernel, status]), example[kernel, status]] for kernel, status in order
    ]


def short_names(old: str, new: str) -> tuple[str, str]:
    """Returns two kernels' names without what the problem says already; "the same" for equal ones."""
    return short_name(old), _SAME if old == new else short_name(new)


def terminal_lines(comparison: Comparison) -> list[str]:
    """Returns the comparison for a terminal."""
    lines = text_table(
        [[name, one_line(value, LONGEST)] for name, value in facts(comparison)], right_aligned=()
    )
    changed = [changed_table(comparison, outcome, one_kernel=True) for outcome in (SLOWER, FASTER)]
    for table in changed + lists(comparison):
        shown = table.plain(_SHOWN)
        lines += ["", table.caption, *(f"  {line}" for line in shown)] if shown else []
    return lines


def markdown(comparison: Comparison, first: Sequence[tuple[str, str]] = ()) -> str:
    """Returns the comparison for a pull request or a step summary. first: as for the page."""
    head = ", ".join(f"{comparison.counts[outcome]} {outcome}" for outcome in OUTCOMES)
    about = Table("", [Column(""), Column("")], text_rows([*first, *facts(comparison, outcomes=False)]))
    title = f"## {text(comparison.old.name)} → {text(comparison.new.name)}: {head}"
    changed = [changed_table(comparison, outcome) for outcome in (SLOWER, FASTER)]
    tables = [one for one in changed + lists(comparison) if one.rows]
    parts = [title, about.markdown(), *(f"### {one.caption}\n\n{one.markdown(_SHOWN)}" for one in tables)]
    return "\n\n".join(parts) + "\n"


_MEMBERS = {
    **{name: name for name in ("by", "margin_percent", "counts", "problems", "untimed")},
    **{"mean_percent": "mean", "same_kernels_percent": "alike", "only_old": "gone", "only_new": "added"},
    **{"between_sessions_percent": "between_percent", "oracles_changed": "oracles_changed"},
    **{"picks_changed": "picks_changed", "kernels_gained": "gained", "kernels_lost": "lost"},
    "newly_failing": "failing",
}
"""Members of the JSON document -> attributes of a comparison."""


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Returns the content of --json: changes in percent, latencies in milliseconds."""
    sides = {
        which: {name: msgspec.to_builtins(getattr(side, name)) for name in ("name", "kind", "made_by")}
        for which, side in (("old", comparison.old), ("new", comparison.new))
    }
    members = {name: msgspec.to_builtins(getattr(comparison, of)) for name, of in _MEMBERS.items()}
    return {"schema": SCHEMA, **sides, **members}


def _picks(comparison: Comparison) -> str:
    known = comparison.old.picks and comparison.new.picks
    return count(len(comparison.picks_changed), "problem") if known else "unknown: a side has no picks"


def _number_of(kernels: Sequence[str] | None) -> str:
    return "unknown: a baseline does not list its kernels" if kernels is None else str(len(kernels))


WORST = 5


def compared_picks(
    both: Side,
    old: tuple[str, pd.DataFrame],
    new: tuple[str, pd.DataFrame],
    margin_percent: float = MARGIN_PERCENT,
) -> Comparison | None:
    """Returns the times of two pickers' picks on the same measurements; None without a problem in common.
    old, new: their names and selections (judge.selection.select)."""
    sides = []
    for name, selection in (old, new):
        covered = selection[selection["coverage"] == COVERED]
        picks = dict(zip(covered["problem"], covered["pick_kernel"], strict=True))
        sides.append(replace(both, name=name, kind="model", picks=picks))
    if not sides[0].picks.keys() & sides[1].picks.keys():
        return None
    return compare_sides(*sides, by=PICK, margin_percent=margin_percent)


def paragraph(found: Comparison, old: pd.DataFrame, new: pd.DataFrame, settle: str = "") -> str:
    """Returns what the new picker changes, in Markdown: problems, efficiency, regret, and the problems that
    got slowest. settle: the command that measures the open problems again."""
    counts = found.counts
    said = [
        f"**{text(found.new.name)}** against **{text(found.old.name)}** on the same measurements of "
        f"{count(len(found.problems), 'problem')}: faster on {counts[FASTER]}, slower on {counts[SLOWER]} "
        f"(5 % false discoveries), the same on {counts[SAME]}, {counts[UNKNOWN]} cannot be told."
    ]
    before, after = (side[side["coverage"] == COVERED].set_index("problem") for side in (old, new))
    shared = before.index.intersection(after.index, sort=False)
    was, now = (
        100.0 * one["efficiency"].astype("float64")[shared].to_numpy(dtype=np.float64)
        for one in (before, after)
    )
    points = [paired_interval(was, now, statistic).points(2) for statistic in (mean, p10)]
    said.append(f"Efficiency: mean {points[0]}, P10 {points[1]} points (95 % intervals over the problems).")
    reached = [time_weighted_percent(lost_times(side[side["problem"].isin(shared)])) for side in (old, new)]
    if was.all() and now.all():  # a pick that fails has no time
        regret = [1e4 / one - 100.0 for one in reached if one]
        said.append(f"Regret, the time above the oracles': {regret[0]:.2f} % before, {regret[1]:.2f} % now.")
    failing = int((now == 0).sum())
    said += [f"{count(failing, 'pick')} fail now."] if failing else []
    gone = len(before.index.difference(after.index))
    said += [f"{count(gone, 'problem')} had a measured pick and have none now."] if gone else []
    parts = [" ".join(said)]
    slower = changed_table(found, SLOWER)
    parts += [slower.markdown(WORST)] if slower.rows else []
    if settle and counts[UNKNOWN]:
        parts.append(f"To settle the {counts[UNKNOWN]} open ones: {code(settle, 1000)}")
    return "\n\n".join(parts)


def open_pairs(found: Comparison) -> pd.DataFrame:
    """Returns both picks (`problem`, `kernel`) of each problem that cannot be told, to measure them again."""
    pairs = {
        (one.problem, name)
        for one in found.with_outcome(UNKNOWN)
        for name in (one.old_kernel, one.new_kernel)
    }
    return pd.DataFrame(sorted(pairs), columns=["problem", "kernel"])


def paragraphs(selections: Mapping[str, pd.DataFrame], records: pd.DataFrame) -> tuple[str, ...]:
    """Returns what the first of several pickers changes against each of the others, on these records."""
    (name, new), *others = selections.items()
    both = side_of_records("", records)
    found = ((old, compared_picks(both, (other, old), (name, new))) for other, old in others)
    return tuple(paragraph(one, old, new) for old, one in found if one is not None)
