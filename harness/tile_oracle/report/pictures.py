"""The pictures of report.html: the judged mean among other ways to choose, roofline, predictions.

They are inline SVG of our own. A charting library would add hundreds of kilobytes to each page and needs
scripts, whereas the report is complete without them.
"""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from tile_oracle.arch import known_archs, load_arch
from tile_oracle.judge import bootstrap
from tile_oracle.pages import charts, words
from tile_oracle.pages.charts import Plot
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.report import wording
from tile_oracle.report.data import ReportData
from tile_oracle.report.figures import EFFICIENCY, efficiencies


def limits(data: ReportData) -> tuple[float, float] | str:
    """(peak in TFLOPS, memory bandwidth in GB/s) of the run's architecture and data type, or why they are not
    known."""
    name = data.run.arch or data.run.target
    peak = load_arch(name).peak if name in known_archs() else None
    selection = data.selection[data.selection["oracle_tflops"].notna()]
    if peak is None or selection.empty:
        return f"No roofline: the peaks of {words.one_line(name) or 'this device'} are not known."
    hardware, dtype = load_arch(name).hardware, str(selection["dtype"].iloc[0])
    # The table has a rate for all formats of as many bits: fp8 is that of e4m3 and of e5m2.
    each = peak.flops_a_cu_and_clock.get(dtype.partition("_")[0])
    if each is None:
        return f"No roofline: the peak of {name} for {words.one_line(dtype)} is not known."
    return each * hardware.num_cus * hardware.max_clock_mhz * 1e6 / 1e12, float(peak.memory_gb_s)


def under_the_roof(problem: Problem, tflops: float, known: tuple[float, float] | str) -> str:
    """Returns how near a speed is to what limits the problem: 41 % of the memory's limit, 300 TFLOPS; "" if
    unknown.
    known: `limits`."""
    if isinstance(known, str):
        return ""
    peak, memory_gb_s = known
    by_memory = problem.flops / problem.bytes * memory_gb_s / 1e3
    what = "memory's" if by_memory < peak else "arithmetic's"
    limit = min(by_memory, peak)
    return f"{100.0 * tflops / limit:,.0f} % of the {what} limit, {words.tflops(limit)} TFLOPS"


def roofline(data: ReportData) -> tuple[Markup | None, str]:
    """(chart, note): the oracles' TFLOPS over arithmetic intensity, under the peak and the memory bandwidth
    of the architecture table. Without known peaks there is no chart, and the note says so."""
    known = limits(data)
    if isinstance(known, str):
        return None, known
    top, memory_gb_s = known
    selection = data.selection[data.selection["oracle_tflops"].notna()]
    moved = [float(problem_from_id(str(problem)).bytes) for problem in selection["problem"]]
    intensity = selection["flops"].to_numpy(dtype=np.float64) / np.array(moved)
    speed = selection["oracle_tflops"].to_numpy(dtype=np.float64)
    low, high = float(intensity.min()) / 1.5, max(float(intensity.max()) * 1.5, 1.0)
    ridge = top * 1e12 / (memory_gb_s * 1e9)
    bends = sorted({low, min(max(ridge, low), high), high})
    corner = [(x, min(x * memory_gb_s / 1e3, top)) for x in bends]
    chart = charts.scatter(
        [
            (float(a), float(b), str(p))
            for a, b, p in zip(intensity, speed, selection["problem"], strict=True)
        ],
        dots="oracle of a problem",
        limit=charts.Line(f"limit: {top:,.0f} TFLOPS, {memory_gb_s:,.0f} GB/s", corner, "second"),
        x_name="FLOP per byte, each tensor moved once",
        y_name="TFLOPS of the oracle",
    )
    name, dtype = data.run.arch or data.run.target, selection["dtype"].iloc[0]
    note = (
        f"Roofline: the limits are the peak of {name} for {dtype} and its memory bandwidth, from the "
        "architecture table. A problem that stays in the cache can lie above the slope."
    )
    return chart, note


def predicted_measured(data: ReportData) -> Markup | None:
    """Returns the picks' measured TFLOPS over the predicted; None where no prediction is in TFLOPS."""
    chosen = data.covered[data.covered["pick_predicted_tflops"].notna() & (data.covered["pick_tflops"] > 0)]
    chosen = chosen[chosen["pick_predicted_tflops"] > 0]
    if chosen.empty:
        return None
    predicted = chosen["pick_predicted_tflops"].to_numpy(dtype=np.float64)
    measured = chosen["pick_tflops"].to_numpy(dtype=np.float64)
    both = np.concatenate([predicted, measured])
    ends = (float(both.min()) / 1.2, float(both.max()) * 1.2)
    return charts.scatter(
        [
            (float(a), float(b), str(p))
            for a, b, p in zip(predicted, measured, chosen["problem"], strict=True)
        ],
        dots="pick of a problem",
        limit=charts.Line("exact prediction", [(end, end) for end in ends], "second"),
        x_name="predicted TFLOPS of the pick",
        y_name="measured TFLOPS",
    )


_WIDTH, _SIDE, _TRACK, _ROW = 480, 14, 46, 17
_LETTER, _LARGE_LETTER = 7.0, 8.3
"""Widths of a letter, at most, in the units of the chart: below the line, and above it."""


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
    at, anchor = _beside(plot.x(own.value), _LARGE_LETTER * len(said), 8)
    plot.text(at, _TRACK - 16, said, anchor, css="lead")
    plot.text(_SIDE, height - 3, f"{low:g} %", "start")
    plot.text(_WIDTH - _SIDE, height - 3, "100 %: the oracle", "end")
    return plot.svg(f"Mean efficiency: {'; '.join([said, *(label for _, label in others)])}")


def _labels(shares: list[tuple[str, float]]) -> list[tuple[int, float, str]]:
    """(row, x, anchor) of each text, whose place on the line is from 0 to 1."""
    boxes: list[tuple[int, float, float]] = []
    found = []
    for said, share in shares:
        wide = _LETTER * len(said)
        at, anchor = _beside(_SIDE + share * (_WIDTH - 2 * _SIDE), wide, 4)
        left, row = at - wide if anchor == "end" else at, 0
        while any(one == row and left < right + 6 and begin < left + wide + 6 for one, begin, right in boxes):
            row += 1
        boxes.append((row, left, left + wide))
        found.append((row, at, anchor))
    return found


def _beside(at: float, wide: float, over: float) -> tuple[float, str]:
    """(x, anchor) of a text at a place on the line: it ends there, begins there where the chart's left edge
    is too near, and begins at that edge where the right one is, too. over: how far it goes beyond."""
    if at + over >= wide:
        return at + over, "end"
    return (at - over, "start") if at - over + wide <= _WIDTH else (0.0, "start")
