"""The sections of report.html on efficiencies and on the gain from choosing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from tile_oracle.judge.selection import TOP_K
from tile_oracle.pages import charts, words
from tile_oracle.pages.tables import Block, Cell, Column, Figures, Note, Table, numbers, times
from tile_oracle.report import pictures
from tile_oracle.report.data import ReportData
from tile_oracle.report.figures import ONE_SWEEP, SINGLE

_QUANTILES = (0, 10, 50, 90, 100)


def efficiency(data: ReportData) -> Sequence[Block]:
    """Returns how many picks are how near to the oracle, and what measuring more of them would give."""
    covered = data.covered
    if covered.empty and data.rankings is None:
        return []
    if covered.empty:
        reasons = "; ".join(f"{len(ids):,} {reason}" for reason, ids in data.not_covered.items())
        return [Note(f"No problem has an efficiency: {reasons or 'no problems'}.")]
    predicted = pictures.predicted_measured(data)
    figures = [
        (
            "Performance profile: problems within a factor of the oracle's time",
            pictures.performance_profile(data),
        ),
        ("Mean efficiency when the first k picks are measured", _top_k_chart(data)),
        *([("Predicted against measured TFLOPS of the picks", predicted)] if predicted else []),
    ]
    order = predicted is None and data.rankings is not None and data.ranked_by.order_only
    note = "The model predicts an order, not TFLOPS: nothing to set against measured TFLOPS."
    return [Figures(figures), *([Note(note)] if order else [])]


def _top_k_chart(data: ReportData) -> Markup:
    reached = data.efficiency.measure_top_percent
    low = _low_end(reached)
    drawn = [charts.Line("first k picks", list(enumerate(reached, start=1)), "first", marked=True)]
    for name, value, css in (
        (SINGLE, data.fixed_mean_percent, "second"),
        (ONE_SWEEP, data.repeatability_percent, "third"),
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


def choice(data: ReportData) -> Sequence[Block]:
    """Returns how much faster the oracle is than the median and the worst kernel."""
    selection = data.selection[data.selection["oracle_tflops"].notna()]
    if selection.empty:
        return []
    oracle = selection["oracle_tflops"].to_numpy(dtype=np.float64)
    rows = [
        [Cell(name), *(times(float(one)) for one in np.percentile(oracle / selection[column], _QUANTILES))]
        for name, column in (
            ("oracle / worst kernel", "worst_tflops"),
            ("oracle / median kernel", "median_tflops"),
        )
    ]
    columns = [Column("ratio of TFLOPS"), *numbers("min", "P10", "median", "P90", "max")]
    table = Table("Speed-up of the oracle", columns, rows, narrow=True)
    roof, limits = pictures.roofline(data)
    note = "How much faster the oracle is than its problem's other ok kernels, and how near to the limits."
    return [Note(note), Figures([("Roofline of the oracles", roof)] if roof else [], table), Note(limits)]


def _low_end(values: Sequence[float]) -> float:
    """Returns the lower end of an axis up to 100 % on which all values fit."""
    lowest = min(values)
    return next(low for low in (90.0, 80.0, 70.0, 60.0, 50.0, 0.0) if lowest >= low)
