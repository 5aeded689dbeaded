"""Two pickers on the same measurements, as a paragraph for a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from tile_oracle.comparison.compare import (
    FASTER,
    MARGIN_PERCENT,
    PICK,
    SAME,
    SLOWER,
    UNKNOWN,
    Comparison,
    compare_sides,
)
from tile_oracle.comparison.side import Side, side_of_records
from tile_oracle.comparison.wording import changed_table
from tile_oracle.judge.bootstrap import mean, p10, paired_interval
from tile_oracle.judge.selection import COVERED
from tile_oracle.pages.tables import code, text
from tile_oracle.pages.words import count
from tile_oracle.report.lost_time import lost_times, time_weighted_percent

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
