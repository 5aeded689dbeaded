"""The figures of each picker of a run: how well it picks, what it picks from, how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tile_oracle.judge.bootstrap import Interval, mean, p10, paired_interval
from tile_oracle.judge.picker import NO_MODEL, Origin
from tile_oracle.judge.selection import COVERED, summarise
from tile_oracle.judge.verdict import Verdict
from tile_oracle.pages import words
from tile_oracle.pages.tables import Cell, Column, Made, Table, number, percent, whole
from tile_oracle.report.lost_time import lost_times, time_weighted_percent


@dataclass(frozen=True)
class PickerFigures:
    """One picker over the problems of a run. Efficiencies are in percent, None if unknown.

    problems: how many have an efficiency, coverage_percent: their share of the set. choices: how the first
    choices were found -> how many, and their mean: the pool has them ("exactly"), a kernel of the same tile
    and split-K stands for them, or another one by `rule` ("nearest"); the pool lacks them, and the problem
    has no pick ("lacking"); or there is none of its own ("by fallback"). us_per_pick: microseconds.
    difference_mean, difference_p10: points above the judged picker over the problems of both, with a paired
    95 % interval; None for the judged picker itself.
    state, message: of its own verdict, "" where none is asked for.
    """

    name: str
    problems: int
    mean_percent: float | None = None
    p10_percent: float | None = None
    median_percent: float | None = None
    top_3_percent: float | None = None
    min_percent: float | None = None
    time_weighted_percent: float | None = None
    coverage_percent: float | None = None
    us_per_pick: float | None = None
    choices: Mapping[str, tuple[int, float | None]] = field(default_factory=dict)
    rule: str = ""
    identity: str = ""
    difference_mean: Interval | None = None
    difference_p10: Interval | None = None
    state: str = ""
    message: str = ""


def picker_figures(
    name: str,
    origin: Origin,
    selection: pd.DataFrame,
    verdict: Verdict | None = None,
    judged: pd.DataFrame | None = None,
) -> PickerFigures:
    """Returns the figures of a picker's selection (judge.selection.select). judged: the selection of the
    picker that is judged first, to compare with."""
    efficiency = summarise(selection)
    covered = selection[selection["coverage"] == COVERED].set_index("problem")["efficiency"].astype("float64")
    mapped = covered[covered.index.isin(list(origin.mapped))]
    fallback = covered[covered.index.isin(list(origin.fallback))]
    exact, same = covered.drop(mapped.index), mapped[mapped.index.isin(list(origin.same_tile))]
    mapped = mapped.drop(same.index)
    top = efficiency.measure_top_percent
    old, new = _in_common(judged, covered)
    return PickerFigures(
        name,
        efficiency.covered,
        efficiency.mean_percent,
        efficiency.p10_percent,
        efficiency.median_percent,
        top[2] if top else None,
        efficiency.min_percent,
        time_weighted_percent(lost_times(selection)),
        efficiency.coverage_percent,
        origin.us_per_pick,
        {
            "exactly": (len(exact), _mean_percent(exact)),
            "same tile and split-K": (len(same), _mean_percent(same)),
            "nearest": (len(mapped), _mean_percent(mapped)),
            "lacking": (len(origin.lacking), None),
            "by fallback": (len(origin.fallback), _mean_percent(fallback)),
        },
        origin.rule,
        origin.identity,
        paired_interval(old, new, mean) if len(old) else None,
        paired_interval(old, new, p10) if len(old) else None,
        "" if verdict is None else verdict.state,
        "" if verdict is None else verdict.message if origin.kind != NO_MODEL else origin.sentence,
    )


def _in_common(judged: pd.DataFrame | None, covered: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Efficiencies of the judged picker and of another one, in percent, over the problems of both."""
    if judged is None:
        return np.zeros(0), np.zeros(0)
    first = judged[judged["coverage"] == COVERED].set_index("problem")["efficiency"].astype("float64")
    both = covered.index.intersection(first.index, sort=False)
    return 100.0 * first[both].to_numpy(), 100.0 * covered[both].to_numpy()


def _mean_percent(efficiency: pd.Series) -> float | None:
    return float(100.0 * efficiency.mean()) if len(efficiency) else None


def pickers_table(pickers: Sequence[PickerFigures]) -> Table:
    """Returns all pickers side by side, without columns that say nothing; without rows for a single one."""
    shown = pickers if len(pickers) > 1 else ()
    made: list[Made] = [
        (Column("picker"), lambda one: Cell(one.name, note=one.identity.removeprefix(f"{one.name} "))),
        *((Column(heading, "num"), _shows(name)) for heading, name in _FIGURES.items()),
        (Column("µs a pick", "num", "the picker's own time on this machine"), _us),
        (
            Column("covered", "num", "problems with an oracle and a measured pick"),
            lambda one: whole(one.problems),
        ),
        (
            Column("choices", "", "that the pool has, and those that another kernel stands for"),
            lambda one: Cell(in_the_pool(one), note=one.rule),
        ),
        (Column("mean, points", "num", _AGAINST), lambda one: _difference(one.difference_mean)),
        (Column("P10, points", "num", _AGAINST), lambda one: _difference(one.difference_p10)),
        (Column("verdict"), lambda one: Cell(one.state, full=one.message if one.state else "")),
    ]
    said = [column for column in made if any(column[1](one).text for one in shown)]
    return Table.of("Pickers", shown, said, narrow=True)


_FIGURES = {
    "mean": "mean_percent",
    "median": "median_percent",
    "P10": "p10_percent",
    "top 3": "top_3_percent",
    "worst": "min_percent",
    "weighted": "time_weighted_percent",
}
"""Heading -> field. weighted: total time of the oracles / of the picks."""
_AGAINST = "above the first picker, over the problems of both, with a paired 95 % interval"


def _shows(name: str) -> Callable[[PickerFigures], Cell]:
    return lambda one: percent(getattr(one, name))


def _us(one: PickerFigures) -> Cell:
    return (
        Cell("-") if one.us_per_pick is None else number(one.us_per_pick, words.microseconds(one.us_per_pick))
    )


def _difference(found: Interval | None) -> Cell:
    return Cell("") if found is None else number(found.value, found.points(1))


def picker_lines(pickers: Sequence[PickerFigures]) -> list[str]:
    """Returns the pickers for a terminal of 80 columns; none for a single one."""
    if len(pickers) < 2:
        return []
    figures = [Column(heading, "num") for heading in (*_FIGURES, "µs", "cover")]
    rows = [
        [
            Cell(words.one_line(one.name, 21)),
            *(Cell(words.percent(getattr(one, name)).removesuffix(" %")) for name in _FIGURES.values()),
            _us(one),
            whole(one.problems),
        ]
        for one in pickers
    ]
    lines = Table("Pickers", [Column("pickers, %"), *figures], rows).plain()
    for one in pickers:
        if one.difference_mean is not None and one.difference_p10 is not None:
            change = f"mean {one.difference_mean.points(1)}, P10 {one.difference_p10.points(1)} points"
            lines.append(f"  {one.name} - {pickers[0].name}: {change}")
        if choices := in_the_pool(one):
            lines.append(f"  {one.name}: choices: {choices}")
        if one.rule:
            lines.append(f"    {one.rule}")
        if one.state and one is not pickers[0]:
            lines.append(f"  {one.name}: {one.state}: {one.message}")
    return lines


def in_the_pool(one: PickerFigures) -> str:
    """Returns how many choices the pool has, which stand for others, and which it lacks, with the means of
    each; "" where it has all."""
    found = {what: known for what, known in one.choices.items() if known[0] or what == "exactly"}
    if found.keys() <= {"exactly"}:
        return ""
    means = {what: "" if mean is None else f" ({words.percent(mean)})" for what, (_, mean) in found.items()}
    return ", ".join(f"{number:,} {what}{means[what]}" for what, (number, _) in found.items())
