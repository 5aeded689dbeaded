"""The pictures of report.html on time: performance profile, roofline, predictions.

They are inline SVG of our own. A charting library would add hundreds of kilobytes to each page and needs
scripts, whereas the report is complete without them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from tile_oracle.arch import known_archs, load_arch
from tile_oracle.pages import charts, words
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.report.data import ReportData

_FACTORS = (1.1, 1.2, 1.5, 2.0)
"""Ends of the performance profile's axis: the first within which all curves are complete, or the last."""
_STEPS = 200


def performance_profile(data: ReportData) -> Markup:
    """Share of the problems whose pick is within a factor of the oracle's time (Dolan and Moré, 2002), one
    curve for the run and one for the baseline. A pick that is not ok is within no factor."""
    runs = {"this run": data.covered["efficiency"].to_numpy(dtype=np.float64)}
    if data.baseline is not None:
        accepted = [value for value in data.baseline.efficiencies.values() if value is not None]
        if accepted:
            runs["baseline"] = np.array(accepted, dtype=np.float64)
    least = min(float(values.min()) for values in runs.values())
    widest = next((factor for factor in _FACTORS if least * factor >= 1.0), _FACTORS[-1])
    drawn = [
        charts.Line(name, _profile(values, widest), css)
        for (name, values), css in zip(runs.items(), ("first", "second"), strict=False)
    ]
    low = min(line.points[0][1] for line in drawn)
    return charts.lines(
        drawn,
        x_range=(1.0, widest),
        y_range=(float(np.floor(min(low, 99.0) / 20.0) * 20.0), 100.0),
        x_name="time of the pick / time of the oracle, at most",
        y_name="problems, %",
    )


def _profile(values: npt.NDArray[np.float64], widest: float) -> list[tuple[float, float]]:
    factors = np.linspace(1.0, widest, _STEPS + 1)
    return [(float(factor), 100.0 * float((values * factor >= 1.0 - 1e-12).mean())) for factor in factors]


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
