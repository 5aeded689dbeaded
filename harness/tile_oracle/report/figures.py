"""The figures of a run by group, as the page's tiles, the Markdown summary and the terminal show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tile_oracle.judge.picker import HELD
from tile_oracle.judge.selection import Efficiency
from tile_oracle.pages import words
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData

EFFICIENCY, TIME_WEIGHTED, FOUND = "efficiency", "time-weighted", "oracle found"


@dataclass(frozen=True)
class Group:
    """Figures of one label. pairs: (name, value); the name may be "". note: what they mean."""

    label: str
    pairs: Sequence[tuple[str, str]]
    note: str = ""


def figure_groups(data: ReportData) -> list[Group]:
    """Returns all groups for which the run has figures."""
    groups = _judged(data) if data.efficiency.covered else []
    compared = []
    if data.fixed_mean_percent is not None:
        compared.append(
            ("best single kernel, used for every problem", words.percent(data.fixed_mean_percent))
        )
    if data.repeatability_percent is not None:
        again = words.percent(data.repeatability_percent)
        compared.append(("winners of one sweep", f"{again} (re-timed)"))
    groups += [Group("to compare", compared)] if compared else []
    over_median, over_worst = speed_ups(data)
    if over_median is not None:
        median, worst = words.times(over_median), words.times(over_worst)
        headroom = f"the oracle is {median} faster than the median kernel, {worst} than the worst"
        groups.append(Group("headroom", [("", headroom)]))
    groups.append(Group("coverage", [("", wording.coverage_sentence(data))]))
    return groups


def _judged(data: ReportData) -> list[Group]:
    groups = [
        Group(
            name,
            [
                ("mean", words.percent(part.mean_percent)),
                ("median", words.percent(part.median_percent)),
                ("P10", words.percent(part.p10_percent)),
                ("min", words.percent(part.min_percent)),
            ],
        )
        for name, part in efficiencies(data)
    ]
    if data.time_weighted_percent is not None:
        meaning = "total time of the oracles / of the picks: long problems count more"
        groups.append(Group(TIME_WEIGHTED, [("", words.percent(data.time_weighted_percent))], meaning))
    found = [("top-1", words.percent(data.efficiency.top_1_percent))]
    if data.ranked_by.kind != HELD:  # a baseline holds picks and no ranking
        found += [
            ("top-5", words.percent(data.efficiency.top_5_percent)),
            ("efficiency of measuring the top 3", words.percent(data.efficiency.measure_top_percent[2])),
        ]
    return [*groups, Group(FOUND, found)]


def efficiencies(data: ReportData) -> list[tuple[str, Efficiency]]:
    """Returns the metrics to show, by name: in-sample problems apart from the others."""
    if not data.in_sample:
        return [(EFFICIENCY, data.efficiency)]
    parts = [(EFFICIENCY, data.efficiency_where(False)), ("in-sample", data.efficiency_where(True))]
    return [(name, part) for name, part in parts if part.covered]


def speed_ups(data: ReportData) -> tuple[float | None, float | None]:
    """Median over the problems of oracle / median kernel and of oracle / worst kernel (TFLOPS ratios)."""
    selection = data.selection[data.selection["oracle_tflops"].notna()]
    if selection.empty:
        return None, None
    oracle = selection["oracle_tflops"].to_numpy(dtype=np.float64)
    over = [oracle / selection[name].to_numpy(dtype=np.float64) for name in ("median_tflops", "worst_tflops")]
    return float(np.median(over[0])), float(np.median(over[1]))
