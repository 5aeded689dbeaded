"""The history in words: one sentence for each step, and the terminal's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_oracle.history.group import FIGURES, ORACLE, PICK, Figure, Group, Mark, Trend
from tile_oracle.history.steps import SIGNIFICANCE, Step
from tile_oracle.static_page import clean
from tile_oracle.terminal.text_table import text_table

_SHOWN_RUNS = 20
_SHORT = 28


def number(figure: Figure, value: float | None) -> str:
    """A value with its unit."""
    if value is None:
        return "-"
    unit = figure.unit if figure.unit.startswith("/") else f" {figure.unit}"
    return f"{bare(figure, value)}{unit}"


def bare(figure: Figure, value: float | None) -> str:
    """A value without its unit; a small one has two digits rather than zeros."""
    if value is None:
        return "-"
    if 0 < abs(value) < 5 * 10.0**-figure.digits:
        return f"{value:.2g}"
    return f"{value:.{figure.digits}f}"


def day(when: str) -> str:
    """The time of a run, to the minute."""
    return when[:16].replace("T", " ")


def step_sentence(group: Group, trend: Trend, step: Step) -> str:
    """What changed, when, by how much, whether noise explains it, and what else changed there."""
    figure = trend.figure
    unit = "points" if figure.unit == "%" else figure.unit
    run, first, last = (group.runs[trend.at[place]] for place in (step.at, step.first, step.last))
    text = (
        f"{figure.title}: {number(figure, step.before)} -> {number(figure, step.after)} "
        f"({step.change:+.{figure.digits}f} {unit}, 95 % interval {step.low:+.{figure.digits}f} to "
        f"{step.high:+.{figure.digits}f}) from {day(run.when)}"
    )
    if first is not last:
        text += f", between {day(first.when)} and {day(last.when)}"
    text += f"; p = {step.p_value:.4f}"
    if not step.settled:
        text += f": not settled (above {SIGNIFICANCE:g}), more runs will tell"
    near = _marks_near(group, trend, step)
    return text + (f"; changed there: {', '.join(near)}" if near else "")


def trend_sentences(group: Group) -> list[tuple[bool, str]]:
    """(settled, sentence) of all steps, newest first, and of odd last values."""
    steps = [(step, trend) for trend in group.trends for step in trend.steps]
    steps.sort(key=lambda one: one[1].at[one[0].at], reverse=True)
    lines = [(step.settled, step_sentence(group, trend, step)) for step, trend in steps]
    for trend in group.trends:
        if trend.odd is not None:
            figure, odd = trend.figure, trend.odd
            text = (
                f"{figure.title}: the last run has {number(figure, odd.value)}; its level predicts "
                f"{odd.low:.{figure.digits}f} to {number(figure, odd.high)} (99 %). "
                "Further runs tell whether it is a step"
            )
            lines.insert(0, (False, text))
    return lines


@dataclass(frozen=True)
class TrendRow:
    """A step, or an odd last value, as a row of a table. kind: "step" or "open" (not settled). better:
    whether the figure rose. between: the range of the beginning, "" if it is one run."""

    kind: str
    better: bool
    figure: str
    before: str
    after: str
    change: str
    interval: str
    when: str
    between: str
    p_value: str
    changed: str


def trend_rows(group: Group) -> list[TrendRow]:
    """Odd last values, then all steps, newest first."""
    odd = [_odd_row(group, trend) for trend in group.trends if trend.odd is not None]
    steps = [(step, trend) for trend in group.trends for step in trend.steps]
    steps.sort(key=lambda one: one[1].at[one[0].at], reverse=True)
    return odd + [_step_row(group, trend, step) for step, trend in steps]


def _step_row(group: Group, trend: Trend, step: Step) -> TrendRow:
    figure = trend.figure
    run, first, last = (group.runs[trend.at[place]] for place in (step.at, step.first, step.last))
    return TrendRow(
        "step" if step.settled else "open",
        step.change > 0,
        figure.title,
        number(figure, step.before),
        number(figure, step.after),
        f"{step.change:+.{figure.digits}f}",
        f"{step.low:+.{figure.digits}f} to {step.high:+.{figure.digits}f}",
        day(run.when),
        "" if first is last else f"{day(first.when)} to {day(last.when)}",
        f"{step.p_value:.3f}",
        "; ".join(_marks_near(group, trend, step)),
    )


def _odd_row(group: Group, trend: Trend) -> TrendRow:
    figure, odd = trend.figure, trend.odd
    assert odd is not None
    expected = f"{bare(figure, odd.low)} to {number(figure, odd.high)}"
    return TrendRow(
        *("open", odd.value > odd.high, figure.title, expected, number(figure, odd.value), "", ""),
        *(day(group.runs[trend.at[-1]].when), "", ""),
        "the last run is outside of what its level predicts (99 %): further runs tell whether it is a step",
    )


def _marks_near(group: Group, trend: Trend, step: Step) -> list[str]:
    near = [mark for mark in group.marks if trend.at[step.first] <= mark.at <= trend.at[step.last]]
    return [mark_text(mark) for mark in near[:4]]


def mark_text(mark: Mark) -> str:
    """A change of device, driver, toolchain, sources or model."""
    return f"{mark.what} {clean(mark.before)[:60]} -> {clean(mark.after)[:60]}"


def run_rows(group: Group) -> list[list[str]]:
    """One row for each run, newest first: time, run, outcome, the figures, changed picks and oracles."""
    columns = [(figure, group.values(figure)) for figure in FIGURES]
    return [
        [
            day(run.when),
            clean(run.name),
            clean(run.state) + ("" if run.complete else ", incomplete"),
            *(bare(figure, values[at]) for figure, values in columns),
            str(group.changed_by_run[at, PICK]),
            str(group.changed_by_run[at, ORACLE]),
        ]
        for at, run in reversed(list(enumerate(group.runs)))
    ]


HEADINGS = (
    "time, UTC",
    "run",
    "verdict",
    *(f"{name}, %" for name in ("mean", "median", "P10", "worst", "coverage", "speed")),
    *("GPU hours", "pairs/s"),
    "picks changed",
    "oracles changed",
)


def terminal_lines(groups: Sequence[Group], notes: Sequence[str]) -> list[str]:
    """The history for a terminal: of each group the newest runs, the steps and the marked changes."""
    head = ["time, UTC", "run", "verdict", "mean", "median", "P10", "worst", "covered", "speed", "GPU h"]
    head += ["pairs/s", "picks", "oracles"]
    lines: list[str] = []
    for group in groups:
        rows = run_rows(group)
        short = [[row[0], _cut(row[1]), _cut(row[2]), *row[3:]] for row in rows[:_SHOWN_RUNS]]
        lines += ["", f"{group.title}: {len(rows)} run{'' if len(rows) == 1 else 's'}"]
        lines += [f"  {line}" for line in text_table([head, *short], right_aligned=range(3, len(head)))]
        if len(rows) > _SHOWN_RUNS:
            lines.append(f"  and {len(rows) - _SHOWN_RUNS} older ones")
        said = trend_sentences(group)
        lines += [f"  {'step' if settled else 'open'}: {text}" for settled, text in said]
        if not said:
            lines.append("  no step: noise explains the figures")
        lines += [
            f"  {day(group.runs[mark.at].when)}: {mark_text(mark)}" for mark in reversed(group.marks[-10:])
        ]
    return [*lines[1:], *notes]


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."
