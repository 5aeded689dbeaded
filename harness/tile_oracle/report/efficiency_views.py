"""The sections of report.html on efficiencies and on the gain from choosing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from tile_oracle.judge.selection import TOP_K
from tile_oracle.pages import charts, words
from tile_oracle.pages.tables import Block, Cell, Column, Figures, Note, Table, numbers, times
from tile_oracle.report.data import ReportData
from tile_oracle.report.figures import CEILING, SINGLE


def efficiency(data: ReportData) -> Sequence[Block]:
    """The distribution of the efficiencies, and what measuring more picks would give."""
    covered = data.covered
    if covered.empty and data.rankings is None:
        return []
    if covered.empty:
        reasons = "; ".join(f"{len(ids):,} {reason}" for reason, ids in data.not_covered.items())
        return [Note(f"No problem has an efficiency: {reasons or 'no problems'}.")]
    values = (100.0 * covered["efficiency"].to_numpy(dtype=np.float64)).tolist()
    low = _low_end(values)
    sorted_lines = [charts.Line("this run", _sorted_points(values), "first")]
    if data.baseline is not None:
        accepted = sorted(100.0 * value for value in data.baseline.efficiencies.values() if value is not None)
        sorted_lines.append(charts.Line("baseline", _sorted_points(accepted), "second"))
        low = min(low, _low_end(accepted))
    distribution = charts.histogram(
        values, low=low, high=100.0, bins=_BINS[low], x_name="efficiency, %", y_name="problems"
    )
    by_problem = charts.lines(
        sorted_lines,
        x_range=(0.0, 100.0),
        y_range=(low, 100.0),
        x_name="problems, % of the covered, worst first",
        y_name="efficiency, %",
    )
    figures = [
        ("Distribution", distribution),
        ("Efficiency of every problem, worst first", by_problem),
        ("Mean efficiency when the first k picks are measured", _top_k_chart(data)),
        ("Place of the oracle in the model's ranking", _rank_chart(data)),
    ]
    return [Figures(figures)]


def _top_k_chart(data: ReportData) -> Markup:
    reached = data.efficiency.measure_top_percent
    low = _low_end(reached)
    drawn = [charts.Line("first k picks", list(enumerate(reached, start=1)), "first", marked=True)]
    for name, value, css in (
        (SINGLE, data.fixed_mean_percent, "second"),
        (CEILING, data.repeatability_percent, "third"),
    ):
        if value is not None:
            below = value < low
            named = f"{name}: {words.percent(value)}{' (below the axis)' if below else ''}"
            drawn.append(charts.Line(named, [] if below else [(1.0, value), (float(TOP_K), value)], css))
    return charts.lines(
        drawn,
        x_range=(1.0, float(TOP_K)),
        y_range=(low, 100.0),
        x_name="k: number of the model's first picks that are measured",
        y_name="mean efficiency, %",
        x_ticks=range(1, TOP_K + 1),
    )


def _rank_chart(data: ReportData) -> Markup:
    rank = data.covered["oracle_rank"].to_numpy(dtype=np.float64, na_value=np.inf)
    parts = [(str(place), place, place) for place in range(1, 6)]
    bounds = [*parts, ("6-10", 6, 10), ("11-20", 11, 20), ("> 20", 21, 10**9)]
    counts = [(name, int(((rank >= low) & (rank <= high)).sum())) for name, low, high in bounds]
    if np.isinf(rank).any():
        counts.append(("none", int(np.isinf(rank).sum())))
    return charts.columns(counts, x_name="place; 1: the pick is the oracle", y_name="problems")


def choice(data: ReportData) -> Sequence[Block]:
    """How much faster the oracle is than the median and the worst kernel."""
    selection = data.selection[data.selection["oracle_tflops"].notna()]
    if selection.empty:
        return []
    oracle = selection["oracle_tflops"].to_numpy(dtype=np.float64)
    curves = [
        (name, np.sort(oracle / selection[column].to_numpy(dtype=np.float64)), css)
        for name, column, css in (
            ("oracle / worst kernel", "worst_tflops", "second"),
            ("oracle / median kernel", "median_tflops", "first"),
        )
    ]
    drawn = [charts.Line(name, _sorted_points(values.tolist()), css) for name, values, css in curves]
    high = max(2.0, float(max(values.max() for _, values, _ in curves)) * 1.05)
    chart = charts.lines(
        drawn,
        x_range=(0.0, 100.0),
        y_range=(1.0, high),
        x_name="problems, %, least first",
        y_name="times faster",
        logarithmic=True,
    )
    rows = [
        [Cell(name), *(times(float(np.percentile(values, q))) for q in (0, 10, 50, 90, 100))]
        for name, values, _ in curves
    ]
    columns = [Column("ratio of TFLOPS"), *numbers("min", "P10", "median", "P90", "max")]
    table = Table("Speed-up of the oracle", columns, rows, narrow=True)
    note = "How much faster the oracle is than the other ok kernels of its problem."
    return [Note(note), Figures([(table.caption, chart)], table)]


def _sorted_points(values: Sequence[float]) -> list[tuple[float, float]]:
    """Ascending values over the cumulative share in percent; a single value is a horizontal line."""
    if len(values) == 1:
        return [(0.0, values[0]), (100.0, values[0])]
    return [(100.0 * place / (len(values) - 1), value) for place, value in enumerate(values)]


def _low_end(values: Sequence[float]) -> float:
    """The lower end of an axis up to 100 % on which all values fit."""
    lowest = min(values)
    return next(low for low in _BINS if lowest >= low)


_BINS = {90.0: 20, 80.0: 20, 70.0: 30, 60.0: 20, 50.0: 25, 0.0: 20}
"""Lower end of an axis up to 100 % -> bins of round widths."""
