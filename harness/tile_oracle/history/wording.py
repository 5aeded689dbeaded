"""The history in words: one sentence for each step, the terminal's tables, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tile_oracle.history.group import FIGURES, JUDGED, ORACLE, PICK, Figure, Group, Mark, Trend
from tile_oracle.history.steps import SIGNIFICANCE, Step
from tile_oracle.history.summary import MADE_BY, RunSummary
from tile_oracle.pages.words import count, one_line
from tile_oracle.terminal.text_table import text_table

_SHOWN_RUNS = 20
_SHORT = 28
_ENOUGH_RUNS = 10
"""With fewer, no step is settled: two levels of five runs are 2 of the 252 ways to choose five of ten."""


def number(figure: Figure, value: float | None) -> str:
    """Returns a value with its unit."""
    unit = figure.unit if figure.unit.startswith("/") else f" {figure.unit}"
    return bare(figure, value) + (unit if value is not None else "")


def bare(figure: Figure, value: float | None) -> str:
    """Returns a value without its unit; a small one has two digits rather than zeros."""
    if value is None:
        return "-"
    if 0 < abs(value) < 5 * 10.0**-figure.digits:
        return f"{value:.2g}"
    return f"{value:.{figure.digits}f}"


def day(when: str) -> str:
    """Returns the time of a run, to the minute."""
    return when[:16].replace("T", " ")


@dataclass(frozen=True)
class TrendRow:
    """A step. kind: "step" or "open" (not settled). better: whether the figure rose. unit: of the change.
    between: the range of the beginning, "" if it is one run. changed: what else changed there."""

    kind: str
    better: bool
    figure: str
    before: str
    after: str
    when: str
    change: str
    unit: str
    interval: str
    between: str
    p_value: float
    changed: str

    @property
    def sentence(self) -> str:
        """The row for a terminal."""
        return (
            f"{self.figure}: {self.before} -> {self.after} ({self.change} {self.unit}, 95 % interval "
            f"{self.interval}) from {self.when}"
            + (f", between {self.between.replace(' to ', ' and ')}" if self.between else "")
            + f"; p = {self.p_value:.4f}"
            + (f": not settled (above {SIGNIFICANCE:g}), more runs will tell" if self.kind == "open" else "")
            + (f"; changed there: {self.changed}" if self.changed else "")
        )


def trend_rows(group: Group) -> list[TrendRow]:
    """Returns all steps, newest first."""
    steps = [(step, trend) for trend in group.trends for step in trend.steps]
    steps.sort(key=lambda one: one[1].at[one[0].at], reverse=True)
    return [_step_row(group, trend, step) for step, trend in steps]


def _step_row(group: Group, trend: Trend, step: Step) -> TrendRow:
    figure = trend.figure
    run, first, last = (group.runs[trend.at[place]] for place in (step.at, step.first, step.last))
    near = [mark for mark in group.marks if trend.at[step.first] <= mark.at <= trend.at[step.last]]
    return TrendRow(
        "step" if step.settled else "open",
        step.change > 0,
        figure.title,
        number(figure, step.before),
        number(figure, step.after),
        day(run.when),
        f"{step.change:+.{figure.digits}f}",
        "points" if figure.unit == "%" else figure.unit,
        f"{step.low:+.{figure.digits}f} to {step.high:+.{figure.digits}f}",
        "" if first is last else f"{day(first.when)} to {day(last.when)}",
        step.p_value,
        ", ".join(mark_text(mark) for mark in near[:4]),
    )


def mark_text(mark: Mark) -> str:
    """Returns a change of device, driver, toolchain, sources or model."""
    return f"{mark.what} {one_line(mark.before, 60)} -> {one_line(mark.after, 60)}"


def run_rows(group: Group) -> list[list[str]]:
    """Returns one row for each run, newest first: time, run, outcome, the figures, changed picks and
    oracles."""
    columns = [(figure, group.values(figure)) for figure in FIGURES]
    return [
        [
            day(run.when),
            one_line(run.name),
            one_line(run.state) + ("" if run.complete or run.mean is None else ", incomplete"),
            *(bare(figure, values[at]) for figure, values in columns),
            str(group.changed_by_run[at, PICK]),
            str(group.changed_by_run[at, ORACLE]),
        ]
        for at, run in reversed(list(enumerate(group.runs)))
    ]


def headings(group: Group) -> list[str]:
    """Returns the columns of `run_rows`."""
    shares = (f"{name}, %" for name in ("mean", "median", "P10", "worst", "coverage", "speed"))
    return [
        *("time, UTC", "run", "verdict", *shares, group.hours, "pairs/s"),
        *("picks changed", "oracles changed"),
    ]


def no_step(group: Group) -> str:
    """Returns why a series has no step."""
    if group.replayed:
        return "replays of one recording have no noise: each difference is one of models or kernels"
    judged = max(len(trend.at) for trend in group.trends)
    if judged < _ENOUGH_RUNS:
        return f"too few runs to tell ({judged:,} complete, needs about {_ENOUGH_RUNS})"
    return f"noise explains all differences between the {judged:,} complete runs"


def state_line(group: Group) -> str:
    """Returns the series in one line: 12 runs, the last passed, mean steady since 2026-11-03."""
    runs = group.runs
    said = f"{count(len(runs), 'run')}, the last {runs[-1].state or 'of unknown outcome'}"
    without = sum(run.mean is None for run in runs)
    said += f", {without:,} without figures" if without else ""
    mean = next(trend for trend in group.trends if trend.figure.name == "mean")
    settled = [step for step in mean.steps if step.settled]
    if group.replayed or not len(mean.at):
        return said
    if len(mean.at) < _ENOUGH_RUNS:
        return f"{said}; too few to tell whether the mean is steady"
    since = day(runs[mean.at[settled[-1].at if settled else 0]].when)[:10]
    moved = f", after a step of {settled[-1].change:+.{mean.figure.digits}f} points" if settled else ""
    return f"{said}; mean steady since {since}{moved}"


def terminal_lines(groups: Sequence[Group], notes: Sequence[str]) -> list[str]:
    """Returns the history for a terminal: of each group the newest runs, the steps and the marked changes."""
    lines: list[str] = []
    for group in groups:
        rows = run_rows(group)
        short = [[row[0], one_line(row[1], _SHORT), one_line(row[2], _SHORT), *row[3:]] for row in rows]
        lines += ["", f"{group.title}: {state_line(group)}"]
        heads = [name.removesuffix(", %").removesuffix(" changed") for name in headings(group)]
        table = text_table([heads, *short[:_SHOWN_RUNS]], right_aligned=range(3, len(heads)))
        lines += [f"  {line}" for line in table]
        if len(rows) > _SHOWN_RUNS:
            lines.append(f"  and {len(rows) - _SHOWN_RUNS} older ones")
        trends = trend_rows(group)
        lines += [f"  {one.kind}: {one.sentence}" for one in trends]
        lines += [] if trends else [f"  no step: {no_step(group)}"]
        lines += [
            f"  {day(group.runs[mark.at].when)}: {mark_text(mark)}" for mark in reversed(group.marks[-10:])
        ]
    return [*lines[1:], *notes]


SCHEMA = 1


def history_document(groups: Sequence[Group], notes: Sequence[str]) -> dict[str, Any]:
    """Returns the content of --json. Numbers have the units of RunSummary; unknown ones are null."""
    return {"schema": SCHEMA, "groups": [_group(group) for group in groups], "notes": list(notes)}


def _group(group: Group) -> dict[str, Any]:
    return {
        "problem_set": group.problem_set,
        "kernel_set": group.kernel_set,
        "target": group.target,
        "replayed": group.replayed,
        "runs": [_run(run, speed) for run, speed in zip(group.runs, group.speed, strict=True)],
        "steps": [
            {
                "figure": trend.figure.name,
                **asdict(step),
                "change": step.change,
                "settled": step.settled,
                **{name: trend.at[getattr(step, name)] for name in ("at", "first", "last")},
            }
            for trend in group.trends
            for step in trend.steps
        ],
        "searched_for_steps": list(JUDGED),
        "made_by_changes": [asdict(mark) for mark in group.marks],
        "changes": [
            {
                **{name: getattr(change, name) for name in ("at", "problem", "what", "before", "after")},
                "efficiency": change.efficiency,
                "oracle_tflops": change.tflops,
            }
            for change in group.changes
        ],
    }


def _run(run: RunSummary, speed: float | None) -> dict[str, Any]:
    plain = ("folder", "name", "when", "state", "complete", "pairs", "new_failures", "pickers", *MADE_BY)
    figures = {figure.name: getattr(run, figure.name, None) for figure in FIGURES}
    return {name: getattr(run, name) for name in plain} | figures | {"speed": speed}
