"""The first thing that report.html shows: the model's mean on a line from the best single kernel to the
winners of one sweep, with the other ways to choose."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from tile_oracle.judge import bootstrap
from tile_oracle.pages import words
from tile_oracle.pages.charts import Plot
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.figures import EFFICIENCY, efficiencies

_WIDTH, _SIDE, _TRACK, _ROW = 480, 14, 46, 17
_LETTER = 7.0
"""Width of a letter, at most, in the units of the chart."""


def spots(data: ReportData) -> list[tuple[float, str]]:
    """(mean efficiency in percent, name with that) of what stands beside the judged model, lowest first."""
    apart = ((f"{name} problems", other.mean_percent or 0.0) for name, other in efficiencies(data)[1:])
    known = [
        (value, f"{words.one_line(name.removeprefix('the '), 40)} {words.percent(value)}")
        for name, value in (*wording.beside(data), *apart)
    ]
    return sorted(known, key=lambda spot: spot[0])


def mean_interval(data: ReportData) -> bootstrap.Interval:
    """Returns the mean efficiency in percent with its 95 % interval over the problems: those that were not
    trained on, where there are some."""
    covered = data.covered
    apart = covered[~covered["in_sample"].astype(bool)]
    values = (apart if len(apart) else covered)["efficiency"].to_numpy(dtype=np.float64)
    return bootstrap.interval(100.0 * values, bootstrap.mean)


def hero_line(data: ReportData) -> Markup:
    """Returns the line. The names below it are in rows, so that none covers another."""
    own, others = mean_interval(data), spots(data)
    low = 5.0 * math.floor((min(own.low, *(value for value, _ in others), 99.0) - 1.0) / 5.0)
    labels = _labels([(label, (value - low) / (100.0 - low)) for value, label in others])
    height = _TRACK + 34 + _ROW * max((row + 1 for row, _, _ in labels), default=0)
    plot = Plot((low, 100.0), (0.0, 1.0), size=(_WIDTH, height), margins=(_SIDE, _SIDE, 0, height - _TRACK))
    plot.rule("axis", _TRACK)
    if data.fixed_mean_percent is not None and data.repeatability_percent is not None:
        ends = (plot.x(data.fixed_mean_percent), plot.x(data.repeatability_percent))
        plot.add("line", css="span", x1=ends[0], x2=ends[1], y1=_TRACK, y2=_TRACK)
    for (value, label), (row, at, anchor) in zip(others, labels, strict=True):
        below = _TRACK + 20 + _ROW * row
        plot.add("line", css="grid", x1=plot.x(value), x2=plot.x(value), y1=_TRACK, y2=below)
        plot.dot("dot third", (value, 0.0), 4, label)
        plot.text(at, below, label, anchor, css="halo")
    trained_on = ", in-sample" if efficiencies(data)[0][0] != EFFICIENCY else ""
    said = f"this model{trained_on} {words.percent(own.value)}, 95 % interval {own.low:.1f} to {own.high:.1f}"
    plot.add("line", css="interval", x1=plot.x(own.low), x2=plot.x(own.high), y1=_TRACK, y2=_TRACK)
    plot.dot("own", (own.value, 0.0), 7, said)
    anchor = "end" if plot.x(own.value) > _WIDTH / 2 else "start"
    side = 8 if anchor == "end" else -8
    plot.text(plot.x(own.value) + side, _TRACK - 16, said, anchor, css="lead")
    plot.text(_SIDE, height - 3, f"{low:g} %", "start")
    plot.text(_WIDTH - _SIDE, height - 3, "100 %: the oracle", "end")
    return plot.svg(f"Mean efficiency: {'; '.join([said, *(label for _, label in others)])}")


def _labels(shares: list[tuple[str, float]]) -> list[tuple[int, float, str]]:
    """(row, x, anchor) of each text, whose place on the line is from 0 to 1: it ends below it, or begins
    there where the chart's edge is too near."""
    boxes: list[tuple[int, float, float]] = []
    found = []
    for said, share in shares:
        at, wide = _SIDE + share * (_WIDTH - 2 * _SIDE), _LETTER * len(said)
        fits = at + 4 > wide
        left, row = at + 4 - wide if fits else at - 4, 0
        while any(one == row and left < right + 6 and begin < left + wide + 6 for one, begin, right in boxes):
            row += 1
        boxes.append((row, left, left + wide))
        found.append((row, at + 4 if fits else at - 4, "end" if fits else "start"))
    return found
