"""The three questions that a reader of a report asks first, answered in sentences made from its data."""

from __future__ import annotations

import shlex

from tile_oracle.judge.verdict import FAILED, PASSED
from tile_oracle.report import wording
from tile_oracle.report.data import FOLDER, ReportData, RunInfo
from tile_oracle.report.lost_time import losing_slices, lost_times

_WORST = 3


def is_it_good(data: ReportData) -> list[str]:
    """The mean beside the baseline, one kernel for all and the noise ceiling; and the time-weighted mean."""
    figures = data.efficiency
    if figures.mean_percent is None:
        return ["No pick can be judged: no problem has both an oracle and a measured pick."]
    picks = f"The picks reach {wording.percent(figures.mean_percent)} of the oracle on average"
    sentences = [f"{picks}, over {wording.count(figures.covered, 'problem')}."]
    beside = []
    mean = next((one for one in data.verdict.criteria if one.name == "mean"), None)
    if mean is not None and mean.baseline is not None:
        beside.append(f"the baseline {wording.percent(mean.baseline)}")
    if data.fixed_mean_percent is not None:
        beside.append(f"the best single kernel for all {wording.percent(data.fixed_mean_percent)}")
    if data.repeatability_percent is not None:
        beside.append(f"the noise ceiling is {wording.percent(data.repeatability_percent)}")
    if beside:
        sentences.append(f"Beside it: {', '.join(beside)}.")
    weighted = data.time_weighted_percent
    if weighted is not None:
        failed = data.selection["efficiency"] == 0
        without = f" (without {wording.count(int(failed.sum()), 'pick')} that failed)" if failed.any() else ""
        sentences.append(
            f"Weighted by time, the picks reach {wording.percent(weighted)}{without}: "
            "long problems count more there than in the mean."
        )
    return sentences


def where_it_fails(data: ReportData) -> list[str]:
    """The kinds of problem and the problems with most of the lost time, and the picks that failed."""
    sentences = []
    failed = int((data.selection["efficiency"] == 0).sum())
    if failed:
        sentences.append(f"{wording.count(failed, 'pick')} failed: no time to compare, efficiency 0.")
    lost = lost_times(data.selection)
    total = float(lost["lost_us"].sum()) if len(lost) else 0.0
    if not total > 0:
        return sentences or ["Every pick is as fast as the oracle."]
    # A kind that all problems are of says nothing about where.
    kinds = [one for one in losing_slices(lost) if one.problems < len(lost) and one.lost_percent > 0]
    for one in kinds[:_WORST]:
        sentences.append(
            f"{one.name}: {wording.count(one.problems, 'problem')}, "
            f"mean {wording.percent(one.mean_percent)}, {wording.percent(one.lost_percent)} of the lost time."
        )
    half = int((lost["lost_us"].cumsum() < total / 2).sum()) + 1
    sentences.append(
        f"Half of the lost time is in {wording.count(half, 'problem')} of {len(lost):,}; "
        f"the largest share is {wording.one_line(lost['problem'].iloc[0])} "
        f"({wording.percent(100.0 * float(lost['lost_us'].iloc[0]) / total)})."
    )
    return sentences


def _accepting(run: RunInfo) -> str:
    """The command of a run that does not name its own, as far as the report knows its options."""
    target = shlex.quote("replay" if run.replayed else run.target or "auto")
    return f"pytest --problem-set {shlex.quote(run.problem_set)} --target {target} --update-baseline"


def next_commands(data: ReportData) -> list[tuple[str, str]]:
    """(reason, command) for what to do next. The commands are quoted for a shell."""
    run, verdict = data.run, data.verdict
    records = shlex.quote(run.folder or run.name)
    found = [("to settle the verdict", one.command) for one in verdict.criteria if one.cause and one.command]
    if not data.efficiency.covered or not run.folder:
        return list(dict.fromkeys(found))
    better = any(
        one.baseline is not None and one.value is not None and one.unit == "%" and one.value > one.baseline
        for one in verdict.criteria
    )
    accepted = "--update-baseline" in run.options
    if run.problem_set and not accepted and (data.baseline is None or (verdict.state == PASSED and better)):
        found.append(("to accept these picks as the baseline", run.accepting or _accepting(run)))
    if data.ranked_by.kind == FOLDER and data.efficiency.covered < data.efficiency.problems:
        model = shlex.quote(data.ranked_by.name)
        suggest = f"tile-oracle suggest {records} --model {model} --csv next.csv"
        found.append(("to find the pairs worth measuring next", suggest))
    lost = lost_times(data.selection)
    worst = [str(name) for name in lost[lost["lost_us"] > 0]["problem"].head(_WORST)]
    if worst and run.target:
        named = " ".join(map(shlex.quote, worst))
        tune = f"tile-oracle tune {named} --target {shlex.quote(run.target)}"
        found.append(("to keep the measured best kernel of the most costly problems", tune))
    if verdict.state == FAILED or data.ranked_by.kind != FOLDER:
        found.append(("to train a model on this run", f"tile-oracle train {records} -o models/next"))
    return list(dict.fromkeys(found))
